"""The routed scale is not applied."""

from __future__ import annotations

from typing import Any

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import edit_config


def edit(config: Any) -> None:
    config.routed_scaling_factor = 1.0


FAULT = Fault(
    name="routed_scale_missing",
    fault_class=FaultClass.ROUTING,
    stands_for="routed_scaling_factor missing in one backend: gsm8k 0.378 instead of 0.897",
    seeded="routed_scaling_factor of the config is changed, so that the scale is not applied",
    caught_by="tests/decode/test_whitebox.py::test_routers_choose_and_weight_experts_as_glm5_does",
    says="the routed scale is not applied",
    apply=lambda: edit_config(edit),
)
