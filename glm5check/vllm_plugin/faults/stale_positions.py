"""Decode steps go on with the positions of an earlier step, as a graph does that was captured with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_forward

RIGHT_STEPS: Final = 4


def apply() -> None:
    history: list[torch.Tensor] = []

    def freeze(run: Callable[..., Any], ids: torch.Tensor, positions: torch.Tensor, is_decode: bool) -> Any:
        if not is_decode:
            history.clear()
            return run(positions)
        if len(history) < RIGHT_STEPS:
            history.append(positions.clone())
        is_same_batch = len(history) == RIGHT_STEPS and history[-1].shape == positions.shape
        return run(history[-1] if is_same_batch else positions)

    around_forward(freeze)


FAULT = Fault(
    name="stale_positions",
    fault_class=FaultClass.GRAPHS,
    stands_for="graphs that replay stale lengths or positions: right logits in prefill, garbage some tokens later",
    seeded=f"after {RIGHT_STEPS} decode steps of a batch its positions stand still",
    caught_by="tests/decode/test_consistency.py::test_decode_and_prefill_are_one_function",
    says="decode goes wrong after some steps",
    apply=apply,
)
