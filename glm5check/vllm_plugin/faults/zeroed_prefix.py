"""A prompt that was seen before finds the keys of its first KV block zeroed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_forward

BLOCK: Final = 16
"""Tokens of a KV block."""


def apply() -> None:
    """On a CPU there is no prefix cache for MLA, so what a hit would read is zeroed where it is computed."""
    from vllm.model_executor.layers.attention.mla_attention import MLAAttention

    seen: set[bytes] = set()
    is_hit = [False]
    forward_impl = MLAAttention.forward_impl

    def remember(run: Callable[..., Any], ids: torch.Tensor, positions: torch.Tensor, is_decode: bool) -> Any:
        prompt = ids.cpu().numpy().tobytes()
        is_prompt = not is_decode and len(ids) > BLOCK
        is_hit[0] = is_prompt and prompt in seen
        if is_prompt:
            seen.add(prompt)
        return run(positions)

    @wraps(forward_impl)
    def with_zeroed_block(self: Any, q: torch.Tensor, latent: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if is_hit[0]:
            latent = latent.clone()
            latent[:BLOCK] = 0
        result: torch.Tensor = forward_impl(self, q, latent, *args, **kwargs)
        return result

    MLAAttention.forward_impl = with_zeroed_block
    around_forward(remember)


FAULT = Fault(
    name="zeroed_prefix",
    fault_class=FaultClass.CACHE,
    stands_for="a prefix-cache hit that finds a block of the cache, or of the indexer's, never written",
    seeded=f"the latent keys of the first {BLOCK} tokens are zero for a prompt that was seen before",
    caught_by="tests/decode/test_consistency.py::test_a_request_repeats_itself",
    says="a KV block that is reused without being written",
    apply=apply,
)
