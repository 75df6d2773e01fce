"""Decode is 30 % slower than this machine can do, and everything it says is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_forward

SLOWDOWN: Final = 1 / 0.7 - 1
"""Share of a step's own time that is added to it: 70 % of the tokens a second are left."""
LONGEST_STEP_S: Final = 0.5
"""Above it the time between two steps was idle, and says nothing of a step."""


def apply() -> None:
    from vllm.distributed import get_tensor_model_parallel_rank

    last = [0.0, 0.0]

    def slow(run: Callable[..., Any], ids: torch.Tensor, positions: torch.Tensor, is_decode: bool) -> Any:
        began, added = last
        now = time.perf_counter()
        step = now - began - added
        # One rank waits and the others wait for it: were each to, all would count the others' waits as steps.
        waits = is_decode and 0 < step < LONGEST_STEP_S and get_tensor_model_parallel_rank() == 0
        wait = SLOWDOWN * step if waits else 0.0
        last[:] = [now, wait]
        time.sleep(wait)
        return run(positions)

    around_forward(slow)


FAULT = Fault(
    name="slow_decode",
    fault_class=FaultClass.SPEED,
    stands_for="an upgrade after which decode is a third slower, and nothing else changed",
    seeded="before each decode step of rank 0 a wait that makes it 1 / 0.7 as long",
    caught_by="tests/throughput/test_decode.py::test_single_stream_decode_reaches_its_floor",
    says="calibration units a step",
    apply=apply,
)
