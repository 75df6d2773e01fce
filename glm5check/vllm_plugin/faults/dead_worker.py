"""One rank's process dies in the middle of serving."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_forward

STEPS: Final = 100
"""Forward passes before the end: the server has started and answered by then."""


def apply() -> None:
    from vllm.distributed import get_tensor_model_parallel_rank

    done = [0]

    def die(run: Callable[..., Any], ids: torch.Tensor, positions: torch.Tensor, is_decode: bool) -> Any:
        done[0] += 1
        if done[0] == STEPS and get_tensor_model_parallel_rank() == 1:
            os._exit(1)
        return run(positions)

    around_forward(die)


FAULT = Fault(
    name="dead_worker",
    fault_class=FaultClass.LIVENESS,
    stands_for="a worker that dies under load; /health may still be green while every request fails",
    seeded=f"the process of rank 1 ends at forward pass {STEPS}",
    caught_by="tests/context/test_soak.py::test_mixed_requests_all_finish_with_finite_logprobs[60]",
    says="the engine died while it served this request",
    apply=apply,
)
