"""Decode is 30 % slower than this machine can do, and everything it says is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_forward

SPEED_LEFT: Final = 0.7
"""Of the tokens a second."""
LONGEST_STEP_S: Final = 0.5
"""Above it the time between two steps was idle, and says nothing of a step."""


def apply() -> None:
    began = 0.0

    def slow(run: Callable[..., Any], ids: torch.Tensor, positions: torch.Tensor, is_decode: bool) -> Any:
        nonlocal began
        if is_decode:
            now = time.perf_counter()
            step = now - began
            # Every rank: while one alone computes, the others leave the engine more of their cores than they used to.
            if step < LONGEST_STEP_S:
                _keep_busy(until=now + step * (1 / SPEED_LEFT - 1))
        began = time.perf_counter()
        return run(positions)

    around_forward(slow)


def _keep_busy(until: float) -> None:
    """Not asleep, for the same reason: the engine's part of a step would get shorter."""
    while time.perf_counter() < until:
        pass


FAULT = Fault(
    name="slow_decode",
    fault_class=FaultClass.SPEED,
    stands_for="an upgrade after which decode is a third slower, and nothing else changed",
    seeded="before each decode step the ranks compute for nothing, for 3/7 of the step's own time",
    caught_by="tests/throughput/test_decode.py::test_single_stream_decode_reaches_its_floor",
    says="calibration units a step",
    apply=apply,
)
