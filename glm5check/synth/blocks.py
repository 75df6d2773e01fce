"""Random quantised blocks, made directly: codes and sub-scales at random, the block's scales chosen for a given spread.

Quantising random floats would take minutes a gigabyte and never use some codes; this runs at the speed of the random
number generator, and every bit of the format matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.checkpoint.dequant import QUANT_TYPES, dequantise, quant_type
from glm5check.errors import CheckpointError

FLOATS: Final = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16)
QUANTISED: Final = tuple(
    qtype
    for qtype in QUANT_TYPES
    # Their scales are no halves at fixed places: a nibble here and there, and an exponent byte.
    if qtype not in (*FLOATS, GGMLQuantizationType.IQ1_M, GGMLQuantizationType.MXFP4)
)
_SAMPLE_WEIGHTS: Final = 1 << 20
"""Weights from which the spread of a type is taken: the standard deviation comes out within 0.3 %."""
_SCALE_SPREAD: Final = 0.5
"""Scales of blocks lie within this share of their mean, so that no two blocks are alike."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """Blocks of one type with scale 1: their standard deviation, and the minimum that gives them mean 0."""

    std: float
    minimum: float


def random_bytes(
    qtype: GGMLQuantizationType, count: int, rng: np.random.Generator, *, std: float, mean: float = 0.0
) -> NDArray[np.uint8]:
    """`count` blocks (of one weight for float types) of type `qtype`, uint8 [count, bytes of a block].

    The weights have standard deviation `std`, and mean 0 but for half a step of codes without a zero in their middle.
    Only float types have another. CheckpointError for a type that cannot be made so.
    """
    if qtype in FLOATS:
        return _floats(qtype, rng.standard_normal(count, np.float32) * np.float32(std) + np.float32(mean))
    if qtype not in QUANTISED or mean:
        known = ", ".join(kind.name for kind in (*FLOATS, *QUANTISED))
        raise CheckpointError(
            f"random weights of mean {mean:g} cannot be made in {qtype.name}", do=f"use one of {known}"
        )
    unit = _unit(qtype)
    # Uniform scales within +-s of their mean have a mean square of 1 + s^2/3.
    scale = std / unit.std / math.sqrt(1 + _SCALE_SPREAD**2 / 3)
    scales = scale * rng.uniform(1 - _SCALE_SPREAD, 1 + _SCALE_SPREAD, count)
    return _with_scales(qtype, _codes(qtype, count, rng), scales, scales * unit.minimum)


def _floats(qtype: GGMLQuantizationType, values: NDArray[np.float32]) -> NDArray[np.uint8]:
    if qtype is GGMLQuantizationType.F32:
        return values.view(np.uint8).reshape(len(values), 4)
    if qtype is GGMLQuantizationType.F16:
        return values.astype(np.float16).view(np.uint8).reshape(len(values), 2)
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(len(values), 2)


def _codes(qtype: GGMLQuantizationType, count: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    size = quant_type(qtype).type_size
    words = rng.integers(0, 1 << 64, -(-count * size // 8), np.uint64)
    codes: NDArray[np.uint8] = words.view(np.uint8)[: count * size].reshape(count, size)
    if qtype is GGMLQuantizationType.Q8_0:
        # No quantiser writes -128.
        signed = codes.view(np.int8)
        np.maximum(signed, -127, out=signed)
    return codes


def _with_scales(
    qtype: GGMLQuantizationType, blocks: NDArray[np.uint8], scales: NDArray[np.float64], minima: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """`blocks` with their halves replaced in place: the scale, and the minimum where the type has one."""
    for at, values in zip(quant_type(qtype).halves, (scales, minima), strict=False):
        blocks[:, at : at + 2] = values.astype(np.float16).view(np.uint8).reshape(-1, 2)
    return blocks


@lru_cache
def _unit(qtype: GGMLQuantizationType) -> _Unit:
    """Measured on a fixed sample. Weights are scale * a + minimum * b for some a and b of every code."""
    count = _SAMPLE_WEIGHTS // quant_type(qtype).block_size
    blocks = _codes(qtype, count, np.random.Generator(np.random.SFC64(0)))
    ones, zeros = np.ones(count), np.zeros(count)
    a = dequantise(_with_scales(qtype, blocks, ones, zeros), qtype).astype(np.float64)
    if len(quant_type(qtype).halves) == 1:
        return _Unit(float(a.std()), 0.0)
    b = dequantise(_with_scales(qtype, blocks, zeros, ones), qtype).astype(np.float64)
    minimum = -float(a.mean() / b.mean())
    return _Unit(float((a + minimum * b).std()), minimum)
