"""What vLLM does when it starts on a CPU, and a process that dequantises with numba is better without."""

from __future__ import annotations

import os
import sys
from functools import wraps
from typing import Any

import torch


def install() -> None:
    """Prepares this process, and those that it starts, for serving on a CPU."""
    _fork_workers()
    _hide_llvmlite_from_kernel_scan()


def _fork_workers() -> None:
    """Lets vLLM fork its engine and workers instead of spawning them.

    A spawned process imports everything again: three levels, one after another, are two thirds of the start-up time. A
    fork is safe while there is no OpenMP pool to lose, which is with one thread.
    """
    from vllm.platforms.cpu import CpuPlatform

    if torch.get_num_threads() > 1:
        return
    check_and_update_config = CpuPlatform.check_and_update_config

    @wraps(check_and_update_config)
    def check_then_fork(vllm_config: Any) -> None:
        check_and_update_config(vllm_config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    CpuPlatform.check_and_update_config = staticmethod(check_then_fork)


def _hide_llvmlite_from_kernel_scan() -> None:
    """Keeps vLLM's search for Triton kernels out of llvmlite, which numba imports.

    Without triton vLLM looks at every attribute of every loaded module for kernels to replace, and at the attributes of
    those: llvmlite has objects that answer any such question with a function, and the worker dies of it.
    """
    try:
        from vllm.triton_utils import dispatcher
    except ImportError:  # vLLM 0.24 has no such search
        return
    rebind_kernels = dispatcher._rebind_kernels

    @wraps(rebind_kernels)
    def rebind_without_llvmlite(overrides: Any) -> None:
        hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "llvmlite"}
        try:
            rebind_kernels(overrides)
        finally:
            sys.modules.update(hidden)

    dispatcher._rebind_kernels = rebind_without_llvmlite
