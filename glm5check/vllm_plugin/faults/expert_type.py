"""Routed experts are decoded with another quant type of equal size."""

from __future__ import annotations

import torch
from gguf import GGMLQuantizationType

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import change_weights


def change(name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
    is_type = ".experts." in name and name.endswith(("gate_proj.qweight_type", "up_proj.qweight_type"))
    if is_type and int(weight) == GGMLQuantizationType.Q4_K:
        return name, torch.tensor(int(GGMLQuantizationType.Q4_0))
    return name, weight


FAULT = Fault(
    name="expert_type",
    fault_class=FaultClass.LOADING,
    stands_for="mixed files whose experts are decoded with the type of another tensor: silent, sizes are equal",
    seeded="gate and up of routed experts in Q4_K are called Q4_0",
    caught_by="tests/sharding/test_live_digests.py::test_every_rank_holds_the_bytes_of_the_files",
    says="sharding.types: got (2, 2), but should be (12, 12)",
    apply=lambda: change_weights(change),
)
