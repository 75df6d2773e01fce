"""The tensors of architecture `glm-dsa`: GGUF name, HF name, shape, and what tensor parallelism does to each.

The layout is llama.cpp's: matrices are stored row by row, shapes here are in numpy order (rows first), experts are
stacked in front. `kv_b_proj` is stored as two tensors, `attn_k_b` (transposed per head) and `attn_v_b`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from glm5check.glm5.dimensions import Dimensions


class Split(StrEnum):
    """What vLLM's tensor parallelism does to a tensor at load time."""

    REPLICATED = "replicated"  # every rank holds all of it
    ROWS = "rows"  # column-parallel layer: each rank holds a contiguous range of output rows
    COLUMNS = "columns"  # row-parallel layer: each rank holds a contiguous range of input columns
    VOCAB = "vocab"  # rows, after padding the vocabulary
    HEADS = "heads"  # leading axis is the attention head
    EXPERT_ROWS = "expert rows"  # rows of every expert
    EXPERT_COLUMNS = "expert columns"  # columns of every expert


@dataclass(frozen=True, slots=True)
class TensorRole:
    """One kind of tensor.

    `gguf` and `hf` hold `{layer}` where there is one tensor a block, `hf` also `{expert}` where HF has one tensor an
    expert. `shape` names attributes of Dimensions, rows first. `merged` is the vLLM parameter that several roles are
    merged into, and `slot` this role's place in it, in logical order.
    """

    gguf: str
    hf: str
    shape: tuple[str, ...]
    split: Split
    merged: str = ""
    slot: int = 0

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) > 1


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor that a model of given dimensions has."""

    role: TensorRole
    layer: int | None
    gguf: str
    hf: str
    shape: tuple[int, ...]


_A = "model.layers.{layer}.self_attn."
_M = "model.layers.{layer}.mlp."
_QKV_A = _A + "fused_qkv_a_proj"
_R, _ROWS, _COLS = Split.REPLICATED, Split.ROWS, Split.COLUMNS

GLOBAL: Final = (
    TensorRole("token_embd.weight", "model.embed_tokens.weight", ("vocab", "hidden"), Split.VOCAB),
    TensorRole("output_norm.weight", "model.norm.weight", ("hidden",), _R),
    TensorRole("output.weight", "lm_head.weight", ("vocab", "hidden"), Split.VOCAB),
)

ATTENTION: Final = (
    TensorRole("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight", ("hidden",), _R),
    TensorRole("blk.{layer}.attn_q_a.weight", _A + "q_a_proj.weight", ("q_lora", "hidden"), _R, _QKV_A, 0),
    TensorRole(
        "blk.{layer}.attn_kv_a_mqa.weight", _A + "kv_a_proj_with_mqa.weight", ("kv_latent", "hidden"), _R, _QKV_A, 1
    ),
    TensorRole("blk.{layer}.attn_q_a_norm.weight", _A + "q_a_layernorm.weight", ("q_lora",), _R),
    TensorRole("blk.{layer}.attn_kv_a_norm.weight", _A + "kv_a_layernorm.weight", ("kv_lora",), _R),
    TensorRole("blk.{layer}.attn_q_b.weight", _A + "q_b_proj.weight", ("query_rows", "q_lora"), _ROWS),
    TensorRole(
        "blk.{layer}.attn_k_b.weight",
        _A + "kv_b_proj.weight",
        ("heads", "kv_lora", "nope"),
        Split.HEADS,
        _A + "kv_b_proj",
        0,
    ),
    TensorRole(
        "blk.{layer}.attn_v_b.weight",
        _A + "kv_b_proj.weight",
        ("heads", "value", "kv_lora"),
        Split.HEADS,
        _A + "kv_b_proj",
        1,
    ),
    TensorRole("blk.{layer}.attn_output.weight", _A + "o_proj.weight", ("hidden", "output_columns"), _COLS),
    TensorRole("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight", ("hidden",), _R),
)

INDEXER: Final = (
    TensorRole("blk.{layer}.indexer.attn_q_b.weight", _A + "indexer.wq_b.weight", ("index_rows", "q_lora"), _R),
    TensorRole(
        "blk.{layer}.indexer.attn_k.weight",
        _A + "indexer.wk.weight",
        ("index_head", "hidden"),
        _R,
        _A + "indexer.wk_weights_proj",
        0,
    ),
    TensorRole(
        "blk.{layer}.indexer.proj.weight",
        _A + "indexer.weights_proj.weight",
        ("index_heads", "hidden"),
        _R,
        _A + "indexer.wk_weights_proj",
        1,
    ),
    TensorRole("blk.{layer}.indexer.k_norm.weight", _A + "indexer.k_norm.weight", ("index_head",), _R),
    TensorRole("blk.{layer}.indexer.k_norm.bias", _A + "indexer.k_norm.bias", ("index_head",), _R),
)

DENSE_FFN: Final = (
    TensorRole(
        "blk.{layer}.ffn_gate.weight", _M + "gate_proj.weight", ("dense_ffn", "hidden"), _ROWS, _M + "gate_up_proj", 0
    ),
    TensorRole(
        "blk.{layer}.ffn_up.weight", _M + "up_proj.weight", ("dense_ffn", "hidden"), _ROWS, _M + "gate_up_proj", 1
    ),
    TensorRole("blk.{layer}.ffn_down.weight", _M + "down_proj.weight", ("hidden", "dense_ffn"), _COLS),
)

_S = _M + "shared_experts."
_E = _M + "experts.{expert}."
_W13 = _M + "experts.w13"

MOE_FFN: Final = (
    TensorRole("blk.{layer}.ffn_gate_inp.weight", _M + "gate.weight", ("experts", "hidden"), _R),
    TensorRole("blk.{layer}.exp_probs_b.bias", _M + "gate.e_score_correction_bias", ("experts",), _R),
    TensorRole(
        "blk.{layer}.ffn_gate_exps.weight",
        _E + "gate_proj.weight",
        ("experts", "expert_ffn", "hidden"),
        Split.EXPERT_ROWS,
        _W13,
        0,
    ),
    TensorRole(
        "blk.{layer}.ffn_up_exps.weight",
        _E + "up_proj.weight",
        ("experts", "expert_ffn", "hidden"),
        Split.EXPERT_ROWS,
        _W13,
        1,
    ),
    TensorRole(
        "blk.{layer}.ffn_down_exps.weight",
        _E + "down_proj.weight",
        ("experts", "hidden", "expert_ffn"),
        Split.EXPERT_COLUMNS,
    ),
    TensorRole(
        "blk.{layer}.ffn_gate_shexp.weight",
        _S + "gate_proj.weight",
        ("shared_ffn", "hidden"),
        _ROWS,
        _S + "gate_up_proj",
        0,
    ),
    TensorRole(
        "blk.{layer}.ffn_up_shexp.weight",
        _S + "up_proj.weight",
        ("shared_ffn", "hidden"),
        _ROWS,
        _S + "gate_up_proj",
        1,
    ),
    TensorRole("blk.{layer}.ffn_down_shexp.weight", _S + "down_proj.weight", ("hidden", "shared_ffn"), _COLS),
)

NEXTN: Final = (
    TensorRole(
        "blk.{layer}.nextn.eh_proj.weight", "model.layers.{layer}.eh_proj.weight", ("hidden", "twice_hidden"), _R
    ),
    TensorRole("blk.{layer}.nextn.enorm.weight", "model.layers.{layer}.enorm.weight", ("hidden",), _R),
    TensorRole("blk.{layer}.nextn.hnorm.weight", "model.layers.{layer}.hnorm.weight", ("hidden",), _R),
    TensorRole(
        "blk.{layer}.nextn.shared_head_norm.weight", "model.layers.{layer}.shared_head.norm.weight", ("hidden",), _R
    ),
)

ALIASES: Final = {"exp_probs_b.weight": "exp_probs_b.bias", "exp_probs_b": "exp_probs_b.bias"}
"""Other names under which converters have written a tensor; the part after `blk.N.`."""

_BLOCK: Final = re.compile(r"blk\.(\d+)\.(.+)")


def expected_tensors(dimensions: Dimensions, *, nextn: bool = False) -> Iterator[TensorSpec]:
    """Every tensor that a GGUF of these dimensions holds, in file order; `nextn` adds the MTP block."""
    for role in GLOBAL:
        yield _spec(role, None, dimensions)
    for layer in range(dimensions.layers):
        ffn = DENSE_FFN if layer < dimensions.dense_layers else MOE_FFN
        for role in (*ATTENTION, *INDEXER, *ffn):
            yield _spec(role, layer, dimensions)
    for layer in range(dimensions.layers, dimensions.layers + (dimensions.nextn_layers if nextn else 0)):
        for role in (*ATTENTION, *INDEXER, *MOE_FFN, *NEXTN):
            yield _spec(role, layer, dimensions)


def canonical_name(name: str) -> str:
    """The table's name of a GGUF tensor that may have been written under an alias."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return name
    return f"blk.{match[1]}.{ALIASES.get(match[2], match[2])}"


def layer_of(name: str) -> int | None:
    """Block number of a GGUF tensor name; None for the embedding, the output and its norm."""
    match = _BLOCK.fullmatch(name)
    return int(match[1]) if match else None


def _spec(role: TensorRole, layer: int | None, dimensions: Dimensions) -> TensorSpec:
    def place(name: str) -> str:
        return name if layer is None else name.replace("{layer}", str(layer))

    shape = tuple(int(getattr(dimensions, axis)) for axis in role.shape)
    return TensorSpec(role, layer, place(role.gguf), place(role.hf), shape)
