"""Routed experts have their gate where the up projection belongs."""

from __future__ import annotations

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import change_weights

_OTHER = {"gate_proj": "up_proj", "up_proj": "gate_proj"}


def change(name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
    if ".experts." not in name:
        return name, weight
    return ".".join(_OTHER.get(part, part) for part in name.split(".")), weight


FAULT = Fault(
    name="gate_up_exchanged",
    fault_class=FaultClass.LOADING,
    stands_for="a kernel that wants [up, gate] and is given [gate, up]",
    seeded="gate and up of every routed expert are exchanged",
    caught_by="tests/sharding/test_live_digests.py::test_every_rank_holds_the_bytes_of_the_files",
    says="other bytes",
    apply=lambda: change_weights(change),
)
