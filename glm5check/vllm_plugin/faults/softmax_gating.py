"""Experts are gated by softmax, vLLM's default where the config has no scoring_func."""

from __future__ import annotations

from typing import Any

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import edit_config


def edit(config: Any) -> None:
    config.scoring_func = "softmax"


FAULT = Fault(
    name="softmax_gating",
    fault_class=FaultClass.ROUTING,
    stands_for="GLM GGUF without a gating function: softmax instead of sigmoid, perplexity 11.06 instead of 9.81",
    seeded="scoring_func of the config is softmax",
    caught_by="tests/decode/test_whitebox.py::test_routers_choose_and_weight_experts_as_glm5_does",
    says="softmax instead of sigmoid gating",
    apply=lambda: edit_config(edit),
)
