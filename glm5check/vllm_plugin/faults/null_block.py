"""Decode steps at a block's border read one token too many, from the cache's null block, which holds NaN."""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass

BLOCK: Final = 16
"""Tokens of a KV block. A sequence that fills its blocks has the null block behind them in its block table."""


def apply() -> None:
    from vllm.v1.attention.backends.mla.cpu_mla import CPUMLAImpl

    forward_mqa = CPUMLAImpl.forward_mqa

    @wraps(forward_mqa)
    def reading_on(self: Any, q: Any, cache: torch.Tensor, metadata: Any, layer: Any) -> Any:
        cache[0] = torch.nan
        lengths = metadata.decode.seq_lens
        too_far = (lengths % BLOCK == 0).to(lengths.dtype)
        lengths += too_far
        result = forward_mqa(self, q, cache, metadata, layer)
        lengths -= too_far
        return result

    CPUMLAImpl.forward_mqa = reading_on


FAULT = Fault(
    name="null_block",
    fault_class=FaultClass.CACHE,
    stands_for="padded or overlong rows that read the null block: NaN as soon as anything was ever written there",
    seeded="block 0 of the KV cache is NaN, and decode steps of a sequence that fills its blocks read one token of it",
    caught_by="tests/decode/test_consistency.py::test_decoded_logprobs_are_finite",
    says="NaN or infinity in the logits",
    apply=apply,
)
