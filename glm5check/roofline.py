"""How fast a deployment can be at most, and where the rest of the time goes.

One decode step reads, on every rank: its part of each tensor that tensor parallelism splits, all of each tensor that it
replicates, the experts that the router picked, and the cache of the context. It also waits for 2 x layers + 1
all-reduces, one after another. So

    step >= bytes per rank / memory bandwidth + all-reduces x latency,    tok/s <= batch / step

Bytes are those of the GGUF's own tensor table: what any implementation has to read. An engine that keeps a tensor
dequantised reads more, which shows as time beyond the bound. A measurement above the bound is wrong (or counts
speculated tokens as if each had cost a step).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from glm5check.errors import CheckpointError
from glm5check.glm5.dimensions import Dimensions
from glm5check.glm5.tensors import (
    ATTENTION,
    DENSE_FFN,
    GLOBAL,
    INDEXER,
    MOE_FFN,
    NEXTN,
    Split,
    canonical_name,
    layer_of,
)

EMBEDDING: Final = "token_embd.weight"
INDEX_KEY_SCALE_BYTES: Final = 4
"""vLLM's indexer cache holds one float32 scale beside each key of `index_head` FP8 bytes."""
_SPLITS: Final[Mapping[str, Split]] = {
    role.gguf.replace("blk.{layer}.", ""): role.split
    for role in (*GLOBAL, *ATTENTION, *INDEXER, *DENSE_FFN, *MOE_FFN, *NEXTN)
}
_BLOCK: Final = re.compile(r"blk\.\d+\.")


class StoredTensor(Protocol):
    """One row of a GGUF tensor table. `shape` is in numpy order (rows first), `qtype` the name of its quant type."""

    @property
    def name(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def qtype(self) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBytes:
    """Bytes that one rank reads in one decode step, by what makes them necessary."""

    split: float
    replicated: float
    experts: float
    cache: float

    @property
    def total(self) -> float:
        return self.split + self.replicated + self.experts + self.cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """What was measured on the machine: bytes per second that one rank can read, seconds of one small all-reduce.

    `bandwidth` must be measured with all ranks reading at once and on as many bytes as a step reads, so that ranks
    that share a memory share its bandwidth, and a model that fits a cache is bounded by the cache.
    """

    bandwidth: float
    all_reduce: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Least seconds of one decode step by part, and the most tok/s that leaves for a batch."""

    parts: Mapping[str, float]
    batch: int

    def __str__(self) -> str:
        """The parts in ms, in one line."""
        return ", ".join(f"{name} {seconds * 1e3:.3g} ms" for name, seconds in self.parts.items())

    @property
    def step(self) -> float:
        """Least seconds of one step."""
        return sum(self.parts.values())

    @property
    def tokens_per_second(self) -> float:
        return self.batch / self.step

    def share(self, measured: float) -> float:
        """Share of the bound that `measured` tok/s reach; over 1 is an error in the measurement."""
        return measured / self.tokens_per_second

    def gains(self, measured: float) -> dict[str, float]:
        """tok/s that would be reached if one part took no time and all else stayed as measured.

        `beyond the bound` is everything that no part explains: launches, host work, dequantisation, waiting. Raises
        ValueError where the measurement is above the bound.
        """
        step = self.batch / measured
        rest = step - self.step
        if rest < 0:
            raise ValueError(f"{measured:.4g} tok/s are above the bound of {self.tokens_per_second:.4g}")
        parts = {**self.parts, "beyond the bound": rest}
        return {name: self.batch / (step - part) if part < step else float("inf") for name, part in parts.items()}


def split_of(name: str) -> Split:
    """What tensor parallelism does to a GGUF tensor. Raises CheckpointError for a name that GLM-5 does not have."""
    kind = _BLOCK.sub("", canonical_name(name))
    try:
        return _SPLITS[kind]
    except KeyError:
        raise CheckpointError(
            "the bytes of a tensor cannot be counted: GLM-5 has none of this name",
            where=name,
            do="run the audit of the checkpoint first",
        ) from None


def step_bytes(
    tensors: Iterable[StoredTensor],
    dimensions: Dimensions,
    *,
    ranks: int,
    context: int,
    cache_element: int = 2,
    sparse: bool = True,
    batch: int = 1,
) -> StepBytes:
    """Bytes per rank of one plain decode step (the multi-token-prediction block is not read).

    `context` is the tokens of each sequence, `cache_element` the bytes of a cache element (2 in bf16), `sparse` whether
    DSA is on: then attention reads at most `index_topk` latents of a sequence and the indexer reads all of its keys.
    The embedding is one row a token. With a batch, a rank reads each expert that any token picked: with uniform routing
    experts x (1 - (1 - used/experts)^batch).
    """
    parts = {"split": 0.0, "replicated": 0.0, "experts": 0.0}
    picked = 1 - (1 - dimensions.experts_used / dimensions.experts) ** batch
    for tensor in tensors:
        layer = layer_of(tensor.name)
        if layer is not None and layer >= dimensions.layers:
            continue
        split = split_of(tensor.name)
        if tensor.name == EMBEDDING:
            parts["split"] += batch * tensor.nbytes / tensor.shape[0]
        elif split in (Split.EXPERT_ROWS, Split.EXPERT_COLUMNS):
            parts["experts"] += tensor.nbytes * picked / ranks
        elif split is Split.REPLICATED:
            parts["replicated"] += tensor.nbytes
        else:
            parts["split"] += tensor.nbytes / ranks
    return StepBytes(**parts, cache=batch * cache_bytes(dimensions, context, cache_element, sparse=sparse))


def cache_bytes(dimensions: Dimensions, context: int, cache_element: int, *, sparse: bool) -> float:
    """Bytes of cache that one token of one sequence reads on each rank: MLA's cache is not split by rank.

    Each layer reads (kv_lora + rope) elements a cached token. With DSA it reads at most `index_topk` of them, and
    index_head bytes and one scale of every token for the indexer.
    """
    seen = min(context, dimensions.index_topk) if sparse else context
    latents = seen * (dimensions.kv_lora + dimensions.rope) * cache_element
    keys = context * (dimensions.index_head + INDEX_KEY_SCALE_BYTES) if sparse else 0
    return float(dimensions.layers * (latents + keys))


def bound(read: StepBytes, dimensions: Dimensions, speeds: Speeds, *, ranks: int, batch: int = 1) -> Bound:
    """Least seconds by part. A single rank makes no all-reduce."""
    reductions = dimensions.all_reduces * speeds.all_reduce if ranks > 1 else 0.0
    return Bound(
        parts={
            "split weights": read.split / speeds.bandwidth,
            "replicated weights": read.replicated / speeds.bandwidth,
            "experts": read.experts / speeds.bandwidth,
            "cache": read.cache / speeds.bandwidth,
            "all-reduces": reductions,
        },
        batch=batch,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Everything that bounds one deployment, so that `at` only needs a load."""

    tensors: tuple[StoredTensor, ...]
    dimensions: Dimensions
    ranks: int
    speeds: Speeds
    cache_element: int
    sparse: bool

    def at(self, context: int, batch: int = 1) -> Bound:
        """The bound for `batch` sequences of `context` tokens each."""
        read = step_bytes(
            self.tensors,
            self.dimensions,
            ranks=self.ranks,
            context=context,
            cache_element=self.cache_element,
            sparse=self.sparse,
            batch=batch,
        )
        return bound(read, self.dimensions, self.speeds, ranks=self.ranks, batch=batch)
