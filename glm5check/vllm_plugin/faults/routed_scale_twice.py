"""The routed scale is applied twice."""

from __future__ import annotations

from typing import Any

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import edit_config


def edit(config: Any) -> None:
    config.routed_scaling_factor = config.routed_scaling_factor**2


FAULT = Fault(
    name="routed_scale_twice",
    fault_class=FaultClass.ROUTING,
    stands_for="routed_scaling_factor applied twice: gsm8k 0.663 instead of 0.953, and the text still reads well",
    seeded="routed_scaling_factor of the config is changed, so that the scale is applied twice",
    caught_by="tests/decode/test_whitebox.py::test_routers_choose_and_weight_experts_as_glm5_does",
    says="the routed scale is applied twice",
    apply=lambda: edit_config(edit),
)
