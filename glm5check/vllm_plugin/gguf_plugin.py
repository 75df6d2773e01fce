"""Import of `vllm_gguf_plugin` on a machine without triton, and pickling of its config between vLLM's processes.

The plugin imports its Triton kernels at the top of its modules, though none of them can run on a CPU. vLLM has
stand-ins for the names that such modules use at import time; they are lent for the duration of the import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from glm5check.errors import SetupError

_STAND_INS = ("triton", "triton.language")


def import_gguf_plugin() -> ModuleType:
    """The module `vllm_gguf_plugin`, imported with stand-ins for triton where triton is not installed.

    Raises SetupError if the plugin is not installed.
    """
    if find_spec("vllm_gguf_plugin") is None:
        raise SetupError(
            "vllm-gguf-plugin is not installed: vLLM cannot read GGUF files without it",
            do="pip install --no-deps vllm-gguf-plugin==0.0.5",
        )
    with _lend_triton():
        return importlib.import_module("vllm_gguf_plugin")


@contextmanager
def _lend_triton() -> Iterator[None]:
    # vLLM decides whether it has triton when this is imported: before the stand-ins are in place.
    from vllm.triton_utils import tl, triton

    if "triton" in sys.modules or find_spec("triton") is not None:
        yield
        return
    sys.modules["triton"], sys.modules["triton.language"] = triton, tl
    try:
        yield
    finally:
        for name in _STAND_INS:
            sys.modules.pop(name, None)


def make_config_portable() -> None:
    """Lets a spawned process unpickle the plugin's GGUFConfig.

    A spawned process unpickles VllmConfig before it loads any plugin, and the pickle names the plugin's class: without
    triton that import fails. The pickle now names `rebuild_config`, whose module prepares the import.
    """
    config_class: Any = import_gguf_plugin().GGUFConfig
    config_class.__reduce__ = lambda self: (rebuild_config, (dict(self.__dict__),))


def rebuild_config(attributes: dict[str, Any]) -> Any:
    """The plugin's GGUFConfig with the given attributes."""
    config_class = import_gguf_plugin().GGUFConfig
    config = config_class.__new__(config_class)
    config.__dict__.update(attributes)
    return config
