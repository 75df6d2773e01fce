"""One pass over the bytes of a GGUF set at the disk's speed: what is in each tensor, in bounded memory.

Files are read with large reads into one buffer, not through maps: pages of a map count as this process's memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glm5check.checkpoint.dequant import QUANT_TYPES, QuantType, quant_type
from glm5check.checkpoint.dequant.quant_type import compiled
from glm5check.checkpoint.header import TensorInfo
from glm5check.checkpoint.index import GgufSet
from glm5check.errors import CheckpointError

READ_BYTES: Final = 8 << 20
_SCRATCH_WEIGHTS: Final = 1 << 16
"""Weights dequantised at a time: 256 KiB of float32 stay in the L2 cache."""

Progress = Callable[[int], None]
"""Called with the number of bytes that were read since the last call."""


class Depth(StrEnum):
    """How much of a set an audit reads."""

    TABLE = "table"  # headers only
    SCALES = "scales"  # every byte, of which the scales are looked at
    WEIGHTS = "weights"  # every byte, dequantised


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorContent:
    """What the bytes of one tensor hold."""

    tensor: TensorInfo
    blocks: int
    non_finite: int
    """Blocks with an infinite or NaN scale (or, of a type without blocks, weight)."""
    all_zero: bool
    """Whether every weight is zero (or, if only they were read, every scale)."""
    largest: float | None
    """Largest magnitude of a weight, infinite if one is not finite; None if only scales were read."""


def contents(model: GgufSet, depth: Depth, progress: Progress = lambda _: None) -> Iterator[TensorContent]:
    """The content of each tensor, file by file in the order of the bytes. Tensors of unknown types are left out.

    CheckpointError if a file shrinks meanwhile. At most READ_BYTES and a little more are in memory.
    """
    buffer = np.empty(READ_BYTES, np.uint8)
    for header in model.headers:
        placed = [t for t in header.tensors if t.qtype in QUANT_TYPES and t.whole_blocks]
        inside = [t for t in placed if t.offset + t.nbytes <= header.size]
        with header.file.open("rb", buffering=0) as stream:
            for tensor in sorted(inside, key=lambda t: t.offset):
                yield _content(stream.fileno(), tensor, buffer, depth, progress)


def _content(
    descriptor: int, tensor: TensorInfo, buffer: NDArray[np.uint8], depth: Depth, progress: Progress
) -> TensorContent:
    kind = quant_type(tensor.qtype)
    blocks = tensor.nbytes // kind.type_size
    step = READ_BYTES // kind.type_size
    non_finite, largest = 0, 0.0
    for first in range(0, blocks, step):
        part = buffer[: min(step, blocks - first) * kind.type_size]
        _read(descriptor, part, tensor, tensor.offset + first * kind.type_size)
        chunk = part.reshape(-1, kind.type_size)
        peak = _largest_weight(kind, chunk) if depth is Depth.WEIGHTS else _largest_scale(kind, chunk)
        if not np.isfinite(peak):
            non_finite += int((~np.isfinite(kind.scales(chunk))).any(axis=1).sum())
        largest = max(largest, peak)
        progress(part.size)
    return TensorContent(
        tensor=tensor,
        blocks=blocks,
        non_finite=non_finite,
        all_zero=largest == 0,
        largest=largest if depth is Depth.WEIGHTS else None,
    )


def _read(descriptor: int, part: NDArray[np.uint8], tensor: TensorInfo, offset: int) -> None:
    done = 0
    while done < part.size:
        count = os.preadv(descriptor, [part[done:].data], offset + done)
        if count == 0:
            raise CheckpointError(
                f"the file ends inside {tensor.name}",
                where=str(tensor.file),
                do="do not audit a file that is still being written",
            )
        done += count


@compiled
def _largest_bits(bits: NDArray[np.uint32]) -> int:
    """Magnitudes of floats order as their bits without the sign do, and NaN after infinity."""
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & np.uint32(0x7FFFFFFF))
    return int(largest)


def _magnitude(values: NDArray[np.float32]) -> float:
    """The largest magnitude; infinite for a NaN."""
    value = float(np.uint32(_largest_bits(values.view(np.uint32).ravel())).view(np.float32))
    return value if np.isfinite(value) else float("inf")


def _largest_scale(kind: type[QuantType], chunk: NDArray[np.uint8]) -> float:
    return _magnitude(kind.scales(chunk))


def _largest_weight(kind: type[QuantType], chunk: NDArray[np.uint8]) -> float:
    step = max(1, _SCRATCH_WEIGHTS // kind.block_size)
    scratch = np.empty((min(step, len(chunk)), kind.block_size), np.float32)
    largest = 0.0
    for first in range(0, len(chunk), step):
        blocks = chunk[first : first + step]
        weights = scratch[: len(blocks)]
        kind.dequantise_blocks(blocks, weights)
        largest = max(largest, _magnitude(weights))
    return largest
