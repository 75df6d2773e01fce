"""The router's bias is rounded to bfloat16."""

from __future__ import annotations

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import change_weights


def change(name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
    is_bias = name.endswith("e_score_correction_bias")
    return name, weight.to(torch.bfloat16).to(weight.dtype) if is_bias else weight


FAULT = Fault(
    name="bias_rounded",
    fault_class=FaultClass.ROUTING,
    stands_for="router biases in bfloat16, where 256 of them become a handful of values: now and then another expert",
    seeded="e_score_correction_bias is rounded to bfloat16 and back in every layer",
    caught_by="tests/sharding/test_live_digests.py::test_every_rank_holds_the_bytes_of_the_files",
    says="e_score_correction_bias",
    apply=lambda: change_weights(change),
)
