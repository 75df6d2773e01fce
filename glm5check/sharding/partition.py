"""The reference partition: which rows, columns and experts of which tensor each rank must hold, and where.

It is derived from the tensor table of GLM-5 alone, without vLLM, so that it can judge what vLLM loads:

    vocab          the vocabulary padded to a multiple of 64, then equal ranges of rows; padding rows are zero
    rows, heads    equal ranges of rows (of heads)
    columns        equal ranges of columns, which must be whole blocks
    expert rows    equal ranges of rows of every expert; expert columns likewise
    replicated     everything

A merged parameter holds its parts in the order of their slots, each cut first: rank r of gate_up has its rows of gate,
then its rows of up. Where parts have rows of different bytes, shorter ones are filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gguf.constants import GGML_QUANT_SIZES

from glm5check.checkpoint.header import TensorInfo
from glm5check.errors import CheckpointError
from glm5check.glm5.tensors import Split, TensorSpec

VOCABULARY_MULTIPLE: Final = 64
"""vLLM pads the vocabulary to this before it divides it among ranks."""

_EXPERTS: Final = (Split.EXPERT_ROWS, Split.EXPERT_COLUMNS)
_ROWS: Final = (Split.ROWS, Split.HEADS, Split.EXPERT_ROWS)
_COLUMNS: Final = (Split.COLUMNS, Split.EXPERT_COLUMNS)
_W13, _ROUTED = "mlp.experts.w13", "mlp.experts.routed_experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of one tensor that a rank holds: ranges of rows and of columns, in weights, of every expert or head.

    `padding` rows of zeros follow. For tensors whose leading axis is the head, `heads` is the range of heads instead.
    """

    tensor: TensorInfo
    rows: range
    columns: range
    heads: range | None = None
    padding: int = 0

    @property
    def column_bytes(self) -> range:
        """The columns as bytes of a row."""
        block, size = GGML_QUANT_SIZES[self.tensor.qtype]
        return range(self.columns.start // block * size, self.columns.stop // block * size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What one rank must hold under one vLLM module: its pieces one below the other, in each expert if it has some."""

    module: str
    kind: str
    """`linear`, `experts` (stacked in front), `heads` (kv_b, rebuilt from two tensors) or `vector`."""
    pieces: tuple[Piece, ...]

    @property
    def experts(self) -> int:
        return self.pieces[0].tensor.shape[0] if self.kind == "experts" else 1

    @property
    def rows(self) -> int:
        return sum(len(piece.rows) + piece.padding for piece in self.pieces)

    @property
    def row_bytes(self) -> int:
        return max(len(piece.column_bytes) for piece in self.pieces)

    @property
    def quantised_name(self) -> str:
        """Name of the vLLM parameter that holds raw bytes."""
        if self.kind == "experts":
            return self.module + "_qweight"
        return self.module + ".qweight"

    @property
    def quant_types(self) -> tuple[int, ...]:
        """The type of each part, in slot order."""
        return tuple(int(piece.tensor.qtype) for piece in self.pieces)


def partition(
    specs: Sequence[TensorSpec], tensors: Mapping[str, TensorInfo], ranks: int, rank: int
) -> Iterator[Parameter]:
    """What rank `rank` of `ranks` must hold of the tensors that exist, by vLLM module, in the order of `specs`.

    `tensors` maps canonical GGUF names to entries of the set. CheckpointError if an axis cannot be divided.
    """
    modules: dict[str, list[TensorSpec]] = {}
    for spec in specs:
        if spec.gguf in tensors:
            modules.setdefault(module_of(spec), []).append(spec)
    for module, parts in modules.items():
        ordered = sorted(parts, key=lambda spec: spec.role.slot)
        pieces = tuple(piece_of(spec, tensors[spec.gguf], ranks, rank) for spec in ordered)
        yield Parameter(module=module, kind=_kind(ordered[0]), pieces=pieces)


def module_of(spec: TensorSpec) -> str:
    """The vLLM module, without the name of its parameter. Experts: the parameter's name without `_qweight`."""
    layer = "" if spec.layer is None else str(spec.layer)
    merged = spec.role.merged.replace("{layer}", layer)
    if merged.endswith(_W13):
        return merged.replace(_W13, f"{_ROUTED}.w13")
    if spec.role.split is Split.EXPERT_COLUMNS:
        return f"model.layers.{layer}.{_ROUTED}.w2"
    return merged or spec.hf.removesuffix(".weight")


def piece_of(spec: TensorSpec, tensor: TensorInfo, ranks: int, rank: int) -> Piece:
    """The part of `tensor` that rank `rank` holds. CheckpointError if it cannot be cut so."""
    rows = tensor.shape[-2] if len(tensor.shape) > 1 else 1
    every_row, every_column = range(rows), range(tensor.columns)
    split = spec.role.split
    if split is Split.HEADS:
        heads = _share(tensor.shape[0], ranks, rank, tensor, "heads")
        return Piece(tensor=tensor, rows=every_row, columns=every_column, heads=heads)
    if split is Split.VOCAB:
        share = -(-rows // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE // ranks
        held = range(min(rank * share, rows), min((rank + 1) * share, rows))
        return Piece(tensor=tensor, rows=held, columns=every_column, padding=share - len(held))
    if split in _ROWS:
        return Piece(tensor=tensor, rows=_share(rows, ranks, rank, tensor, "rows"), columns=every_column)
    if split in _COLUMNS:
        columns = _share(tensor.columns, ranks, rank, tensor, "columns")
        block = GGML_QUANT_SIZES[tensor.qtype][0]
        if columns.start % block or columns.stop % block:
            raise CheckpointError(
                f"{len(columns)} columns of {tensor.name} for each of {ranks} ranks are no whole blocks of {block}",
                where=str(tensor.file),
                do="serve on fewer ranks, or quantise this tensor with smaller blocks",
            )
        return Piece(tensor=tensor, rows=every_row, columns=columns)
    return Piece(tensor=tensor, rows=every_row, columns=every_column)


def _share(size: int, ranks: int, rank: int, tensor: TensorInfo, what: str) -> range:
    if size % ranks:
        raise CheckpointError(
            f"{ranks} ranks cannot share {size} {what} of {tensor.name} evenly",
            where=str(tensor.file),
            do="serve on a number of ranks that divides them",
        )
    share = size // ranks
    return range(rank * share, (rank + 1) * share)


def _kind(spec: TensorSpec) -> str:
    if spec.role.split in _EXPERTS:
        return "experts"
    if spec.role.split is Split.HEADS:
        return "heads"
    return "linear" if spec.role.is_matrix else "vector"
