"""Query heads lie in another order than the file has them."""

from __future__ import annotations

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import change_weights


def change(name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
    if name.endswith("layers.1.self_attn.q_b_proj.qweight"):
        return name, weight.roll(weight.shape[0] // 4, dims=0)
    return name, weight


FAULT = Fault(
    name="permuted_heads",
    fault_class=FaultClass.LOADING,
    stands_for='a converter that orders heads otherwise than the loader: all weights mapped, output only "!"',
    seeded="the rows of layer 1's q_b_proj are rotated by a quarter",
    caught_by="tests/sharding/test_live_digests.py::test_every_rank_holds_the_bytes_of_the_files",
    says="other bytes",
    apply=lambda: change_weights(change),
)
