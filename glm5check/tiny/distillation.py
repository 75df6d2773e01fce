"""Training of the sparse-attention indexer: its scores learn the distribution of the attention that they select for.

The published recipe (DeepSeek-V3.2, dense warm-up): with the model frozen and attention dense, minimise
KL(head-mean of the attention || softmax of the index scores) per query. The model under test then selects sensibly
where a context is longer than top-k.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.nn import functional
from transformers import GlmMoeDsaForCausalLM
from transformers.models.glm_moe_dsa.modeling_glm_moe_dsa import apply_rotary_pos_emb_interleave

from glm5check.tiny.dataset import Batch

RATE: Final = 1e-3


def train_indexers(model: GlmMoeDsaForCausalLM, batches: Iterable[Batch]) -> tuple[float, float]:
    """Train every layer's indexer in place, the rest frozen; returns the first and the last step's mean KL in nats."""
    indexers = [layer.self_attn.indexer for layer in model.model.layers]
    optimizer = torch.optim.AdamW([p for i in indexers for p in i.parameters()], lr=RATE, weight_decay=0.0)
    divergences: list[float] = []
    attention = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the only one that returns its weights
    for ids, _ in batches:
        seen = _observe(model, ids)
        loss = torch.stack([_divergence(i, *seen[i]) for i in indexers]).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        divergences.append(loss.item())
    model.set_attn_implementation(attention)
    return divergences[0], divergences[-1]


@torch.no_grad()
def _observe(model: GlmMoeDsaForCausalLM, ids: torch.Tensor) -> dict[Any, tuple[tuple[Any, ...], torch.Tensor]]:
    """Per indexer: (what it is called with, head-mean attention [rows, queries, keys]) of one dense forward pass."""
    arguments: dict[Any, tuple[Any, ...]] = {}
    hooks = [
        layer.self_attn.indexer.register_forward_pre_hook(lambda module, args: arguments.update({module: args}))
        for layer in model.model.layers
    ]
    try:
        weights = model(ids, use_cache=False, output_attentions=True).attentions
    finally:
        for hook in hooks:
            hook.remove()
    return {
        layer.self_attn.indexer: (arguments[layer.self_attn.indexer], attention.mean(dim=1))
        for layer, attention in zip(model.model.layers, weights, strict=True)
    }


def _divergence(indexer: Any, arguments: tuple[Any, ...], target: torch.Tensor) -> torch.Tensor:
    """Mean over queries of KL(target || softmax(index scores)), with a gradient to the indexer's weights."""
    scores = index_scores(indexer, *arguments[:3])
    length = scores.shape[-1]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    log_scores = functional.log_softmax(scores.masked_fill(future, float("-inf")), dim=-1).masked_fill(future, 0.0)
    return (torch.special.xlogy(target, target) - target * log_scores).sum(dim=-1).mean()


def index_scores(
    indexer: Any,
    hidden: torch.Tensor,
    q_latent: torch.Tensor,
    position_embeddings: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """Scores [rows, queries, keys] of a `GlmMoeDsaIndexer`, which itself returns only the selected positions.

    score(t, s) = sum over heads h of weight_h(t) * relu(q_h(t) . k(s)) / sqrt(head_dim * heads); rope turns the first
    `qk_rope_head_dim` components of q and k.
    """
    rows, length, _ = hidden.shape
    rope = indexer.qk_rope_head_dim
    q = indexer.wq_b(q_latent).view(rows, length, indexer.n_heads, indexer.head_dim)
    k = indexer.k_norm(indexer.wk(hidden)).unsqueeze(2)
    q_rope, k_rope = apply_rotary_pos_emb_interleave(
        q[..., :rope], k[..., :rope], *position_embeddings, unsqueeze_dim=2
    )
    q = torch.cat([q_rope, q[..., rope:]], dim=-1)
    k = torch.cat([k_rope, k[..., rope:]], dim=-1).squeeze(2)
    products = functional.relu(torch.einsum("rthd,rsd->rths", q, k) * indexer.softmax_scale)
    weights = indexer.weights_proj(hidden) * indexer.n_heads**-0.5
    return torch.einsum("rth,rths->rts", weights, products)
