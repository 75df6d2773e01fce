"""What this machine can serve on."""

from __future__ import annotations

from functools import cache


@cache
def gpu_names() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs, by index; empty without a driver. Asks NVML, so no CUDA context is made."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
    finally:
        pynvml.nvmlShutdown()
