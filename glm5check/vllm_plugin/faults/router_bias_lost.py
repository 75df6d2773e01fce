"""The router's bias is not what the file says, as where it was never loaded."""

from __future__ import annotations

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import change_weights


def change(name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
    return name, torch.zeros_like(weight) if name.endswith("e_score_correction_bias") else weight


FAULT = Fault(
    name="router_bias_lost",
    fault_class=FaultClass.LOADING,
    stands_for="a router bias that was allocated but not loaded: zero, or whatever memory held",
    seeded="e_score_correction_bias is zero in every layer",
    caught_by="tests/sharding/test_live_digests.py::test_every_rank_holds_the_bytes_of_the_files",
    says="e_score_correction_bias",
    apply=lambda: change_weights(change),
)
