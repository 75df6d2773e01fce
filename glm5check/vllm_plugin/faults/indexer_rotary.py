"""The sparse indexer rotates halves instead of interleaved pairs: invisible while nothing is dropped."""

from __future__ import annotations

from typing import Any

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import edit_config


def edit(config: Any) -> None:
    config.indexer_rope_interleave = False


FAULT = Fault(
    name="indexer_rotary",
    fault_class=FaultClass.INDEXER,
    stands_for="GLM-5.x: single-character errors that grow with the context, token salad past 9 to 13 thousand tokens",
    seeded="indexer_rope_interleave of the config is false",
    caught_by="tests/context/test_ladder.py::test_every_length_is_scored_as_the_oracle_does",
    says="grows with position",
    apply=lambda: edit_config(edit),
    needs_gpu=True,
)
