"""Attention scores are scaled wrongly, as with YaRN's mscale left out or applied twice."""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass

FACTOR: Final = 0.8


def apply() -> None:
    from vllm.model_executor.layers.attention.mla_attention import MLAAttention

    init = MLAAttention.__init__

    @wraps(init)
    def with_other_scale(self: Any, *args: Any, scale: float, **kwargs: Any) -> None:
        init(self, *args, scale=scale * FACTOR, **kwargs)

    MLAAttention.__init__ = with_other_scale


FAULT = Fault(
    name="attention_scale",
    fault_class=FaultClass.ROTARY,
    stands_for="YaRN scale of another ratio: perplexity 6.06 instead of 5.07, and the error grows with position",
    seeded=f"attention scores are multiplied by {FACTOR}",
    caught_by="tests/decode/test_against_oracle.py::test_mean_kl_on_random_tokens",
    says="attention scores: the first position",
    apply=apply,
)
