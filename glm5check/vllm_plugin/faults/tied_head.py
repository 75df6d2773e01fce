"""The output matrix holds the embedding's weights."""

from __future__ import annotations

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import change_weights


def apply() -> None:
    embedding: dict[str, torch.Tensor] = {}

    def change(name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
        module, _, kind = name.rpartition(".")
        if module == "model.embed_tokens":
            embedding[kind] = weight
        return name, embedding[kind] if module == "lm_head" else weight

    change_weights(change)


FAULT = Fault(
    name="tied_head",
    fault_class=FaultClass.LOADING,
    stands_for="split files whose output matrix is tied to the embedding, because one part of the set lacks it",
    seeded="lm_head is loaded with the embedding's weights",
    caught_by="tests/sharding/test_live_digests.py::test_every_rank_holds_the_bytes_of_the_files",
    says="lm_head",
    apply=apply,
)
