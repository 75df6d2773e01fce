"""The bias that should only choose experts stays in their weights."""

from __future__ import annotations

from typing import Any

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import after_routing


def keep_bias(router: Any, logits: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Normalised to the same sum as the right weights."""
    biased = torch.sigmoid(logits.float()) + router.e_score_correction_bias.float()
    chosen = biased.gather(1, experts.long())
    return chosen / chosen.sum(dim=1, keepdim=True) * weights.sum(dim=1, keepdim=True)


FAULT = Fault(
    name="bias_in_weights",
    fault_class=FaultClass.ROUTING,
    stands_for="biased scores used as routing weights: coherent text of a worse model",
    seeded="expert weights are sigmoid(logits) + bias, normalised",
    caught_by="tests/decode/test_whitebox.py::test_routers_choose_and_weight_experts_as_glm5_does",
    says="the bias is kept in the weights",
    apply=lambda: after_routing(keep_bias),
)
