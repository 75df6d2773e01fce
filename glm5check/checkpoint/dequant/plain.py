"""Types that are not quantised: one weight a block."""

from __future__ import annotations

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.checkpoint.dequant.quant_type import QuantType, compiled, half_of


class F32(QuantType, qtype=GGMLQuantizationType.F32):
    @classmethod
    def dequantise_blocks(cls, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        out[...] = blocks.view(np.float32)


@compiled
def _widen(bits: NDArray[np.uint16], out: NDArray[np.float32]) -> None:
    for n in range(bits.size):
        out[n] = half_of(np.uint32(bits[n]))


class F16(QuantType, qtype=GGMLQuantizationType.F16):
    @classmethod
    def dequantise_blocks(cls, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        _widen(blocks.view(np.uint16).ravel(), out.ravel())


class BF16(QuantType, qtype=GGMLQuantizationType.BF16):
    @classmethod
    def dequantise_blocks(cls, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        np.left_shift(blocks.view(np.uint16), np.uint32(16), out=out.view(np.uint32), dtype=np.uint32)
