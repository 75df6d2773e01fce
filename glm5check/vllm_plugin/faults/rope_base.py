"""The rope base is eight times too large."""

from __future__ import annotations

from typing import Any, Final

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import edit_config

FACTOR: Final = 8


def edit(config: Any) -> None:
    config.rope_parameters = {**config.rope_parameters, "rope_theta": config.rope_parameters["rope_theta"] * FACTOR}


FAULT = Fault(
    name="rope_base",
    fault_class=FaultClass.ROTARY,
    stands_for="GLM-5.2: rope_theta 8e6 in one place of the config, 1e6 in another, and no word of it",
    seeded=f"rope_theta of the config is multiplied by {FACTOR}",
    caught_by="tests/decode/test_against_oracle.py::test_mean_kl_on_random_tokens",
    says="attention scores: the first position",
    apply=lambda: edit_config(edit),
)
