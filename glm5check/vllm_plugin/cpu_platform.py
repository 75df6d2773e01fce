"""What vLLM does when it starts on a CPU, and a process that dequantises with numba is better without."""

from __future__ import annotations

import os
import sys
from functools import wraps
from typing import Any

import torch
from vllm.distributed import get_world_group

from glm5check import calibration


def install() -> None:
    """Prepares this process, and those that it starts, for serving on a CPU."""
    _fork_workers()
    _give_each_rank_a_core()
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


def _give_each_rank_a_core() -> None:
    """Keeps each rank that builds a model to a core of its own; vLLM's own binding does not reach forked workers.

    A rank waits for the others in a loop that never yields. Two on one core wait for each other a time slice at a time:
    on two cores 2.5 % of steps took several times as long, with a core each none.
    """
    from vllm_gguf_plugin import loader

    initialize_model = loader.initialize_model

    @wraps(initialize_model)
    def initialize_on_own_core(*args: Any, **kwargs: Any) -> torch.nn.Module:
        ranks = get_world_group()
        keep_to_core(ranks.rank_in_group, ranks.world_size)
        return initialize_model(*args, **kwargs)

    loader.initialize_model = initialize_on_own_core


def keep_to_core(rank: int, ranks: int) -> None:
    """Keeps this thread to the core of `rank`; not where there are fewer cores than ranks, or ranks have threads."""
    if torch.get_num_threads() == 1:
        calibration.keep_to_core(0, rank, ranks)


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
