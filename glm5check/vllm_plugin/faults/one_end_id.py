"""The server knows the first end-of-sequence id only."""

from __future__ import annotations

from functools import wraps
from typing import Any

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass


def apply() -> None:
    from vllm.config import ModelConfig

    try_get_generation_config = ModelConfig.try_get_generation_config

    @wraps(try_get_generation_config)
    def with_first_only(self: Any) -> dict[str, Any]:
        config: dict[str, Any] = dict(try_get_generation_config(self))
        if isinstance(config.get("eos_token_id"), list):
            config["eos_token_id"] = config["eos_token_id"][:1]
        return config

    ModelConfig.try_get_generation_config = with_first_only


FAULT = Fault(
    name="one_end_id",
    fault_class=FaultClass.TOKENIZER,
    stands_for="GLM answers, then writes `<|user|>` and talks to itself: one of three end-of-sequence ids is known",
    seeded="eos_token_id of the generation config is cut to its first id",
    caught_by="tests/decode/test_tokenizer.py::test_every_end_of_sequence_id_stops",
    says="missing from the server's end-of-sequence ids",
    apply=apply,
)
