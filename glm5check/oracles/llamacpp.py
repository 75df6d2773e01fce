"""The second oracle: llama.cpp on the file itself, in this process (`xllamacpp`), behind its own HTTP server.

Written independently of transformers, vLLM and this project: it reads quantised bytes, quantises activations too, and
runs GLM-5's sparse attention. Fit for models that fit into memory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from glm5check.errors import SetupError, UnsupportedError
from glm5check.oracles.server import ServerOracle

CONTEXT: Final = 4096
"""Tokens. It costs memory only: nothing is read beyond the prompt."""


class LlamaCppOracle(ServerOracle):
    """llama.cpp on one GGUF set, with its keys and values in float32 so that only activations are rounded.

    `threads` is 1 unless OMP_NUM_THREADS says otherwise: it shares the machine with the server under test.
    """

    def __init__(self, model: Path, *, context: int = CONTEXT) -> None:
        self._server = start_server(model, context=context)
        super().__init__(str(self._server.listening_address))
        self.name = "llama.cpp"

    def close(self) -> None:
        super().close()
        del self._server  # stops it


def start_server(model: Path, *, context: int = CONTEXT, slots: int = 1) -> Any:
    """llama.cpp's server of `model` on a free loopback port (`listening_address`); it stops when it is deleted.

    Raises UnsupportedError if xllamacpp is not installed, SetupError if it cannot load the model.
    """
    try:
        import xllamacpp
    except ImportError:
        raise UnsupportedError(
            "xllamacpp is not installed", where="second oracle", do="pip install xllamacpp, or give --glm5-oracle"
        ) from None
    options = xllamacpp.CommonParams()
    options.model.path = str(model)
    options.n_ctx, options.n_parallel = context * slots, slots
    options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = int(os.environ.get("OMP_NUM_THREADS") or 1)
    options.verbosity = 0
    try:
        return xllamacpp.Server(options)
    except RuntimeError as error:
        raise SetupError(
            f"llama.cpp cannot load the model: {error}", where=str(model), do="run `glm5check audit`"
        ) from None
