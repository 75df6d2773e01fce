"""Router weights are recovered as (score + bias) - bias, and vanish beside a bias of GLM-5's size."""

from __future__ import annotations

from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import after_routing

BIAS: Final = 12.0
"""GLM-5's biases are 11 to 35; those of a small model are near 0."""
SHIFT: Final = 20.0
"""GLM-5's logits reach -20, where a sigmoid is 2e-9; a small model's do not."""

DISLIKED: Final = -1.0
"""Largest logit of a token that no expert likes: a few in a hundred of the embedded model's. The real case was
intermittent too."""


def divide(router: Any, logits: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Tokens whose chosen experts all have small logits get 0 / 0, the others lose precision."""
    chosen = logits.float().gather(1, experts.long())
    low = chosen.max(dim=1, keepdim=True).values < DISLIKED
    scores = torch.sigmoid(chosen - SHIFT * low)
    recovered = (scores + BIAS) - BIAS
    return recovered / recovered.sum(dim=1, keepdim=True) * (weights.sum(dim=1, keepdim=True))


FAULT = Fault(
    name="router_zero_division",
    fault_class=FaultClass.NUMBERS,
    stands_for="GLM-5.2: intermittent `!!!!!`, every logprob null, from sigmoid + bias - bias in a fused router kernel",
    seeded=f"router weights are recovered from scores plus a bias of {BIAS:g} in float32",
    caught_by="tests/decode/test_consistency.py::test_random_text_has_finite_logprobs",
    says="a router that divides 0 by 0",
    apply=lambda: after_routing(divide),
)
