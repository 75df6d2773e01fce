"""Types that are not quantised: one weight a block."""

from __future__ import annotations

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.checkpoint.dequant.quant_type import QuantType, compiled, half_of


class Plain(QuantType, qtype=None):
    """A block is one weight, which is its own scale."""

    @classmethod
    def scales(cls, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
        weights = np.empty((len(blocks), 1), np.float32)
        cls.dequantise_blocks(np.ascontiguousarray(blocks), weights)
        return weights


class F32(Plain, qtype=GGMLQuantizationType.F32):
    @classmethod
    def dequantise_blocks(cls, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        out[...] = blocks.view(np.float32)


@compiled
def _widen(bits: NDArray[np.uint16], out: NDArray[np.float32]) -> None:
    for n in range(bits.size):
        out[n] = half_of(np.uint32(bits[n]))


class F16(Plain, qtype=GGMLQuantizationType.F16):
    @classmethod
    def dequantise_blocks(cls, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        _widen(blocks.view(np.uint16).ravel(), out.ravel())


class BF16(Plain, qtype=GGMLQuantizationType.BF16):
    @classmethod
    def dequantise_blocks(cls, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        np.left_shift(blocks.view(np.uint16), np.uint32(16), out=out.view(np.uint32), dtype=np.uint32)
