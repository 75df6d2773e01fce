"""Runs the installed loader classes for simulated ranks: vLLM's own layers, one rank at a time, in this process.

Only the group of ranks is a stand-in that says which rank this is; loading asks it nothing else. The layers, their
weight loaders and the GGUF parameters are the installed ones, so they then hold what those of a worker would hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.vllm_plugin.gguf_plugin import import_gguf_plugin
from glm5check.vllm_plugin.parameters import held_types

_GROUPS: Final = ("_DP", "_PCP", "_DCP", "_EP", "_PP")
"""Groups besides tensor parallelism that layers ask for, each of one rank."""


QKV_HEAD: Final = 2
"""Rows of a head in a `qkv` layer. GLM-5 has no such layer; the plugin loads it by code of its own."""


class Part(NamedTuple):
    """One tensor as an adapter hands it to a loader: its slot in a merged parameter, its type, its raw rows.

    `slot` is None in a layer that is not merged, q, k or v in a `qkv` layer, and w1, w2 or w3 for expert `expert`.
    """

    slot: int | str | None
    qtype: GGMLQuantizationType
    raw: NDArray[np.uint8]
    expert: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """What a rank holds after loading: the bytes, the type of each part, and the layer, to be run."""

    raw: NDArray[np.uint8]
    quant_types: tuple[int, ...]
    layer: Any


class _Group:
    """A group of ranks of which only this one exists."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank = self.rank_in_group = self.local_rank = rank
        self.world_size = ranks
        self.ranks = list(range(ranks))
        self.device_group = self.cpu_group = None

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's part of the sum."""
        return tensor


@contextmanager
def as_rank(rank: int, ranks: int) -> Iterator[None]:
    """Within it, this process is rank `rank` of `ranks`."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state

    saved = {name: getattr(parallel_state, name, None) for name in ("_TP", *_GROUPS)}
    try:
        for name in _GROUPS:
            setattr(parallel_state, name, _Group(0, 1))
        parallel_state._TP = _Group(rank, ranks)
        with set_current_vllm_config(_vllm_config(ranks)):
            yield
    finally:
        for name, group in saved.items():
            setattr(parallel_state, name, group)


@cache
def _vllm_config(ranks: int) -> Any:
    from vllm.config import VllmConfig

    config = VllmConfig()
    config.parallel_config.tensor_parallel_size = ranks
    return config


def gguf_config() -> Any:
    """The installed config for GGUF: of vLLM's own tree up to 0.23, else of the plugin; SetupError if there is none."""
    if find_spec("vllm.model_executor.layers.quantization.gguf") is not None:
        from vllm.model_executor.layers.quantization.gguf import GGUFConfig
    else:
        import_gguf_plugin()
        from vllm_gguf_plugin.quantization.config import GGUFConfig
    return GGUFConfig([])


def load_linear(kind: str, columns: int, rows: Sequence[int], parts: Sequence[Part], rank: int, ranks: int) -> Held:
    """Load `parts`, in their order, into a linear layer of the whole model's sizes as rank `rank` of `ranks` does.

    `kind` is merged (gate_up), fused (q_a and kv_a, on every rank), qkv (heads of QKV_HEAD rows), column or row; `rows`
    are output sizes by slot.
    """
    from vllm.model_executor.layers import linear

    with as_rank(rank, ranks):
        config = gguf_config()
        if kind == "merged":
            layer = linear.MergedColumnParallelLinear(
                columns, list(rows), bias=False, quant_config=config, prefix="a.b"
            )
        elif kind == "fused":
            from vllm.model_executor.models.deepseek_v2 import DeepSeekV2FusedQkvAProjLinear

            layer = DeepSeekV2FusedQkvAProjLinear(columns, list(rows), quant_config=config, prefix="a.b")
        elif kind == "qkv":
            heads, kv_heads = (size // QKV_HEAD for size in rows[:2])
            layer = linear.QKVParallelLinear(
                columns, QKV_HEAD, heads, kv_heads, bias=False, quant_config=config, prefix="a.b"
            )
        elif kind == "column":
            layer = linear.ColumnParallelLinear(columns, rows[0], bias=False, quant_config=config, prefix="a.b")
        else:
            layer = linear.RowParallelLinear(
                columns, rows[0], bias=False, quant_config=config, prefix="a.b", reduce_results=False
            )
        return _filled(layer, parts)


def load_vocabulary(kind: str, columns: int, vocabulary: int, part: Part, rank: int, ranks: int) -> Held:
    """Load `part` into the embedding (`embedding`) or the output matrix (`head`) as rank `rank` of `ranks` does."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

    layer_class = VocabParallelEmbedding if kind == "embedding" else ParallelLMHead
    with as_rank(rank, ranks):
        layer = layer_class(vocabulary, columns, quant_config=gguf_config(), prefix="a.b")
        return _filled(layer, [part])


def load_experts(
    experts: int, hidden: int, width: int, parts: Sequence[Part], rank: int, ranks: int
) -> tuple[Held, Held]:
    """Load `parts` (slots w1, w3: gate and up, w2: down) into routed experts; returns what w13 and w2 hold."""
    from vllm.model_executor.layers import fused_moe

    build = getattr(fused_moe, "FusedMoEFactory", None) or fused_moe.FusedMoE  # its name in vLLM 0.24
    with as_rank(rank, ranks):
        _vllm_config(ranks).compilation_config.static_forward_context.clear()  # where layers register by name
        moe = build(
            num_experts=experts,
            top_k=2,
            hidden_size=hidden,
            intermediate_size=width,
            quant_config=gguf_config(),
            prefix="model.layers.1.mlp.experts",
        )
        layer = moe.routed_experts
        for part in parts:
            name = "w2" if part.slot == "w2" else "w13"
            types, weights = getattr(layer, f"{name}_qweight_type"), getattr(layer, f"{name}_qweight")
            place = {"shard_id": part.slot, "expert_id": part.expert}
            types.weight_loader(types, torch.tensor(int(part.qtype)), f"{name}_qweight_type", **place)
            weights.weight_loader(weights, torch.from_numpy(part.raw), f"{name}_qweight", **place)
        return _held(layer, "w13_qweight"), _held(layer, "w2_qweight")


def output(held: Held, inputs: NDArray[np.float32], rank: int, ranks: int) -> NDArray[np.float32]:
    """The layer's own forward pass on inputs [tokens, columns of this rank]."""
    with as_rank(rank, ranks):
        return held.layer.quant_method.apply(held.layer, torch.from_numpy(inputs)).numpy()


def embedded(held: Held, token_ids: Sequence[int], rank: int, ranks: int) -> NDArray[np.float32]:
    """The embedding's forward pass before its all-reduce: zeros for tokens of other ranks."""
    with as_rank(rank, ranks):
        return held.layer(torch.tensor(token_ids)).numpy()


def _filled(layer: Any, parts: Sequence[Part]) -> Held:
    for part in parts:
        slot = () if part.slot is None else (part.slot,)
        layer.qweight_type.weight_loader(layer.qweight_type, torch.tensor(int(part.qtype)), *slot)
        layer.qweight.weight_loader(layer.qweight, torch.from_numpy(part.raw), *slot)
    layer.quant_method.process_weights_after_loading(layer)
    return _held(layer, "qweight")


def _held(layer: Any, name: str) -> Held:
    types = held_types(getattr(layer, f"{name}_type"), one_for_all=name != "qweight")
    return Held(getattr(layer, name).detach().numpy(), types, layer)
