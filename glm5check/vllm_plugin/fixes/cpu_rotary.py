"""vLLM's CPU rotary kernel reads wrong elements of the queries and keys of multi-head latent attention."""

from __future__ import annotations

from typing import Any

import torch

from glm5check.vllm_plugin.fixes.fix import Fix


def is_needed() -> bool:
    """Whether the kernel rotates [tokens, heads, dim] otherwise than the same numbers as [tokens, heads * dim]."""
    from vllm import _custom_ops as ops
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return False
    tokens, heads, dim = 3, 2, 8
    angles = torch.arange(tokens).unsqueeze(1) + torch.arange(dim // 2) / dim
    cache = torch.cat([angles.cos(), angles.sin()], dim=1)
    query = torch.arange(tokens * heads * dim, dtype=torch.float32).reshape(tokens, heads, dim)
    flat, shaped = query.reshape(tokens, -1).clone(), query.clone()
    for form in (flat, shaped):
        ops.rotary_embedding(torch.arange(tokens), form, form[:, :1].clone(), dim, cache, False)
    return not torch.equal(flat.reshape(shaped.shape), shaped)


def apply() -> None:
    """Has RotaryEmbedding use its PyTorch form on CPUs."""
    from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding

    def forward_cpu(
        self: Any, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        rotated: tuple[torch.Tensor, torch.Tensor | None] = self.forward_native(positions, query, key)
        return rotated

    RotaryEmbedding.forward_cpu = forward_cpu


FIX = Fix(
    name="cpu_rotary",
    what="rotary positions of multi-head latent attention are garbage in eager mode on CPUs: silent, the text repeats "
    "itself",
    versions="vLLM 0.32.0 for CPU",
    is_needed=is_needed,
    apply=apply,
)
