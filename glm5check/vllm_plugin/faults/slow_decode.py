"""Decode is 30 % slower than this machine can do, and everything it says is right."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_forward

SPEED_LEFT: Final = 0.7
"""Of the tokens a second."""
STEPS_SEEN: Final = 100
"""Decode steps over which a step's own time is learned. The rounds that warm a measurement up have more."""
LONGEST_STEP_S: Final = 0.5
"""Above it the time between two steps was idle, and says nothing of a step."""


def apply() -> None:
    from vllm.distributed import get_tensor_model_parallel_rank

    steps: list[float] = []
    began = 0.0

    def slow(run: Callable[..., Any], ids: torch.Tensor, positions: torch.Tensor, is_decode: bool) -> Any:
        nonlocal began
        # One rank waits and the others wait for it: were each to, all would count the others' waits as steps.
        if is_decode and get_tensor_model_parallel_rank() == 0:
            step = time.perf_counter() - began
            if len(steps) < STEPS_SEEN:
                steps.extend([step] if step < LONGEST_STEP_S else [])
            elif step < LONGEST_STEP_S:
                # Not a share of this very step: while a rank waits, the engine has a core more, and steps get shorter.
                time.sleep(max(0.0, statistics.median(steps) / SPEED_LEFT - step))
        began = time.perf_counter()
        return run(positions)

    around_forward(slow)


FAULT = Fault(
    name="slow_decode",
    fault_class=FaultClass.SPEED,
    stands_for="an upgrade after which decode is a third slower, and nothing else changed",
    seeded="before each decode step of rank 0 a wait until 1 / 0.7 of a step's own time has passed",
    caught_by="tests/throughput/test_decode.py::test_single_stream_decode_reaches_its_floor",
    says="calibration units a step",
    apply=apply,
)
