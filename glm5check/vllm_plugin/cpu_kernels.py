"""CPU kernels for the GGUF operations of `vllm_gguf_plugin.ops`, which has them for CUDA and Triton only.

They multiply with the dequantised weights in the activations' dtype: correct first. A weight is dequantised once and
kept on its parameter, so a decode step costs plain matrix products. Activations are not quantised to q8_1 as the GPU
kernels do.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from glm5check.vllm_plugin.dequantise import to_weights

CACHE: Final = "_glm5check_dequantised"
"""Attribute of a parameter that holds its dequantised form. Whoever edits a quantised parameter in place deletes it."""

_MOE_BLOCK: Final = 16
"""Rows of one expert that moe_align_block_size pads to; any number works here, GPU kernels use 4 to 64."""


def install() -> None:
    """Puts the kernels in place of the plugin's, in this process."""
    from vllm.model_executor.layers.fused_moe import fused_moe
    from vllm_gguf_plugin import ops

    ops.ggml_dequantize = ggml_dequantize
    ops.ggml_mul_mat_a8 = ops.ggml_mul_mat_vec_a8 = ggml_mul_mat_a8
    ops.ggml_moe_a8 = ggml_moe_a8
    ops.ggml_moe_a8_vec = ggml_moe_a8_vec
    ops.ggml_moe_get_block_size = ggml_moe_get_block_size
    ops.moe_sum = moe_sum
    fused_moe.moe_align_block_size = moe_align_block_size


def ggml_dequantize(
    W: torch.Tensor,  # noqa: N803
    quant_type: int,
    m: int,
    n: int,
    dtype: torch.dtype | None,
) -> torch.Tensor:
    """Raw rows `W`, uint8, as weights [m, n] of `dtype` (float16 if None, as the CUDA kernel does).

    Not cached: the plugin calls it with temporaries, the embedding rows of one step. The embedding passes m and n
    swapped, as only their product matters.
    """
    return to_weights(W, quant_type, dtype or torch.float16).reshape(m, n)


def ggml_mul_mat_a8(W: torch.Tensor, X: torch.Tensor, quant_type: int, row: int) -> torch.Tensor:  # noqa: N803
    """X [tokens, columns] times W transposed: [tokens, row]. `W` is raw rows, uint8 [row, bytes]."""
    return torch.nn.functional.linear(X, _weights(W, quant_type, X.dtype))


def ggml_moe_a8_vec(
    X: torch.Tensor,  # noqa: N803
    W: torch.Tensor,  # noqa: N803
    topk_ids: torch.Tensor,
    top_k: int,
    quant_type: int,
    row: int,
    tokens: int,
) -> torch.Tensor:
    """Each (token, choice) pair through its expert: [tokens * top_k, row].

    `X` is [tokens, columns] and row i of the result uses X row i // top_k and expert topk_ids.flatten()[i]. `W` is raw
    rows of all experts, uint8 [experts, row, bytes].
    """
    experts = topk_ids.flatten()
    return _through_experts(X, _weights(W, quant_type, X.dtype), experts, top_k)


def ggml_moe_a8(
    X: torch.Tensor,  # noqa: N803
    W: torch.Tensor,  # noqa: N803
    sorted_token_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_padded: torch.Tensor,
    quant_type: int,
    row: int,
    top_k: int,
    tokens: int,
) -> torch.Tensor:
    """As `ggml_moe_a8_vec`, with the pairs sorted by expert: block b of `sorted_token_ids` goes to `expert_ids[b]`.

    Entries of `sorted_token_ids` that are tokens * top_k or more are padding.
    """
    pairs = sorted_token_ids[: int(num_tokens_post_padded)]
    block = sorted_token_ids.numel() // expert_ids.numel()
    owners = expert_ids.repeat_interleave(block)[: pairs.numel()]
    real = pairs < tokens * top_k
    experts = torch.empty(tokens * top_k, dtype=torch.long)
    experts[pairs[real].long()] = owners[real].long()
    return _through_experts(X, _weights(W, quant_type, X.dtype), experts, top_k)


def ggml_moe_get_block_size(quant_type: int) -> int:
    """Rows of one block of `moe_align_block_size`."""
    return _MOE_BLOCK


def moe_sum(inputs: torch.Tensor, output: torch.Tensor) -> None:
    """Sums the weighted expert outputs [tokens, top_k, hidden] over top_k into `output`."""
    torch.sum(inputs, dim=1, out=output)


def moe_align_block_size(
    topk_ids: torch.Tensor, block_size: int, num_experts: int, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sorts the (token, choice) pairs by expert and pads each expert's to whole blocks.

    Returns int32 pair numbers [padded], the expert of each block [padded / block_size], and the padded length [1]. The
    padding value is the number of pairs.
    """
    flat = topk_ids.flatten().long()
    counts = torch.bincount(flat, minlength=num_experts)
    blocks = (counts + block_size - 1) // block_size
    starts = torch.cumsum(blocks, 0) * block_size - blocks * block_size
    order = torch.argsort(flat, stable=True)
    within = torch.arange(flat.numel()) - (torch.cumsum(counts, 0) - counts)[flat[order]]
    padded = int(blocks.sum()) * block_size
    pairs = torch.full((padded,), flat.numel(), dtype=torch.int32)
    pairs[starts[flat[order]] + within] = order.to(torch.int32)
    owners = torch.repeat_interleave(torch.arange(num_experts, dtype=torch.int32), blocks)
    return pairs, owners, torch.tensor([padded], dtype=torch.int32)


def _through_experts(x: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor, top_k: int) -> torch.Tensor:
    """Row i of the result is x[i // top_k] times the transposed weights of experts[i]."""
    out = x.new_empty(experts.numel(), weights.shape[1])
    for expert in torch.unique(experts).tolist():
        pairs = (experts == expert).nonzero().squeeze(1)
        out[pairs] = torch.nn.functional.linear(x[pairs // top_k], weights[expert])
    return out


def _weights(raw: torch.Tensor, quant_type: int, dtype: torch.dtype) -> torch.Tensor:
    """The dequantised `raw`, from the cache on the parameter if it is one.

    Temporaries are not cached: the plugin slices layers of mixed types anew at every step, and their memory is reused.
    """
    if not isinstance(raw, torch.nn.Parameter):
        return to_weights(raw, quant_type, dtype)
    cached = getattr(raw, CACHE, None)
    if cached is None or cached[0] != (quant_type, dtype):
        cached = ((quant_type, dtype), to_weights(raw, quant_type, dtype))
        setattr(raw, CACHE, cached)
    return cached[1]
