"""Dequantisation of GGUF data, equal to gguf-py's reference bit for bit in float32 and as fast as llama.cpp's C."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.checkpoint.dequant import iquants, kquants, legacy, nonlinear, plain
from glm5check.checkpoint.dequant.quant_type import QUANT_TYPES, QuantType, quant_type
from glm5check.checkpoint.dequant.rounding import narrowed
from glm5check.errors import CheckpointError

__all__ = ["QUANT_TYPES", "QuantType", "dequantise", "quant_type"]

_REGISTERED = (iquants, kquants, legacy, nonlinear, plain)  # importing them fills QUANT_TYPES

_SCRATCH_WEIGHTS = 1 << 15
"""Weights that are converted at a time where the output is not float32: their float32 form stays in the L2 cache."""

OutputType = Literal["float32", "float16", "bfloat16"]


def dequantise(
    raw: NDArray[np.uint8], qtype: GGMLQuantizationType | int, *, out: OutputType = "float32"
) -> NDArray[Any]:
    """The weights in `raw`, uint8 [..., bytes of a row]: any rows of a tensor, or whole blocks out of each row.

    Returns [..., columns] in float32, float16 (rounded to nearest even, overflow to infinity) or bfloat16; numpy has no
    bfloat16, so that one comes as the uint16 of its bits. CheckpointError if the bytes of a row are no whole number of
    blocks or the type is unknown.
    """
    kind = quant_type(qtype)
    if raw.shape[-1] % kind.type_size:
        raise CheckpointError(
            f"a row of {raw.shape[-1]} bytes is {raw.shape[-1] / kind.type_size:g} blocks of {kind.qtype.name}",
            do="cut rows at block borders only, and check that the type belongs to these bytes",
        )
    shape = (*raw.shape[:-1], raw.shape[-1] // kind.type_size * kind.block_size)
    blocks = np.ascontiguousarray(raw).reshape(-1, kind.type_size)
    if out == "float32":
        weights = np.empty((len(blocks), kind.block_size), np.float32)
        kind.dequantise_blocks(blocks, weights)
        return weights.reshape(shape)
    narrow = np.empty((len(blocks), kind.block_size), np.float16 if out == "float16" else np.uint16)
    step = _SCRATCH_WEIGHTS // kind.block_size
    scratch = np.empty((min(step, len(blocks)), kind.block_size), np.float32)
    for first in range(0, len(blocks), step):
        wide = scratch[: len(blocks) - first]
        kind.dequantise_blocks(blocks[first : first + step], wide)
        narrowed(wide, narrow[first : first + step])
    return narrow.reshape(shape)
