"""Capture a decode step's CUDA graph once more, so that what was put around a layer since then becomes part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def recapture_single_token(model_runner: Any) -> Callable[[], None]:
    """Capture the full graphs of one token anew, and return what puts the old ones back.

    Does nothing where there are none: eager servers, piecewise graphs, runners that keep their graphs elsewhere.
    Nothing is executed while a graph is captured, so the KV cache stays as it is; for the same reason there is no
    warm-up, and every kernel that is new to the step must have run before. To be called on all ranks at once: capture
    exchanges the addresses of all-reduce buffers.
    """
    graphs = getattr(model_runner.model, "concrete_cudagraph_entries", {})
    old = {shape: graph for shape, graph in graphs.items() if shape.num_tokens == 1}
    if not old:
        return lambda: None

    from vllm.compilation.monitor import set_cudagraph_capturing_enabled
    from vllm.config import CUDAGraphMode
    from vllm.distributed.parallel_state import graph_capture

    for shape in old:
        del graphs[shape]
    set_cudagraph_capturing_enabled(True)
    try:
        with graph_capture(device=model_runner.device):
            for shape in old:
                model_runner._warmup_and_capture(shape, cudagraph_runtime_mode=CUDAGraphMode.FULL, num_warmups=0)
    except BaseException:
        graphs.update(old)
        raise
    finally:
        set_cudagraph_capturing_enabled(False)
    return lambda: graphs.update(old)
