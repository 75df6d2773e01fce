"""kv_b_proj is rebuilt from attn_k_b without transposing it: the shape is right."""

from __future__ import annotations

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass


def join_untransposed(keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    heads, kv_lora, nope = keys.shape
    joined = torch.cat([keys.reshape(heads, nope, kv_lora), values], dim=1)
    return joined.reshape(-1, kv_lora)


def apply() -> None:
    from glm5check.vllm_plugin import adapter

    adapter.join_kv_b = join_untransposed


FAULT = Fault(
    name="kv_b_untransposed",
    fault_class=FaultClass.LOADING,
    stands_for="adapters for files in which llama.cpp split kv_b_proj into a transposed half and another",
    seeded="the key rows of kv_b_proj in every layer are the stored bytes, not transposed",
    caught_by="tests/sharding/test_live_digests.py::test_every_rank_holds_the_bytes_of_the_files",
    says="kv_b_proj",
    apply=apply,
)
