"""Quant types of 32 weights with one half-precision scale (and, in the `_1` types, a minimum).

Inner loops run to a length read from an array: one known when compiling is unrolled, which defeats vectorisation.
"""

from __future__ import annotations

import numba
import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.checkpoint.dequant.quant_type import QuantType, half


class Q4_0(QuantType, qtype=GGMLQuantizationType.Q4_0):  # noqa: N801 (the name of the format)
    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        width = out.shape[1] // 2
        for n in range(blocks.shape[0]):
            block, lower, upper = blocks[n], out[n, :16], out[n, 16:]
            scale, codes = half(block, 0), block[2:18]
            for i in range(width):
                lower[i] = scale * np.float32(np.int8((codes[i] & 15) - 8))
                upper[i] = scale * np.float32(np.int8((codes[i] >> 4) - 8))


class Q4_1(QuantType, qtype=GGMLQuantizationType.Q4_1):  # noqa: N801
    halves = (0, 2)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        width = out.shape[1] // 2
        for n in range(blocks.shape[0]):
            block, lower, upper = blocks[n], out[n, :16], out[n, 16:]
            scale, minimum, codes = half(block, 0), half(block, 2), block[4:20]
            for i in range(width):
                lower[i] = scale * np.float32(np.uint8(codes[i] & 15)) + minimum
                upper[i] = scale * np.float32(np.uint8(codes[i] >> 4)) + minimum


@numba.njit(inline="always")
def bits_of(block: NDArray[np.uint8], at: int) -> np.uint32:
    """The 16 bits at byte `at`: the fifth bits of 16 weights."""
    return np.uint32(block[at]) | np.uint32(block[at + 1]) << np.uint32(8)


class Q5_0(QuantType, qtype=GGMLQuantizationType.Q5_0):  # noqa: N801
    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        width = out.shape[1] // 2
        for n in range(blocks.shape[0]):
            block, lower, upper = blocks[n], out[n, :16], out[n, 16:]
            scale, codes = half(block, 0), block[6:22]
            low, high = bits_of(block, 2), bits_of(block, 4)
            for i in range(width):
                fifth, sixteen = np.uint32(i), np.uint32(16)
                lower[i] = scale * np.float32(np.int8((codes[i] & 15 | (low >> fifth & np.uint32(1)) * sixteen) - 16))
                upper[i] = scale * np.float32(np.int8((codes[i] >> 4 | (high >> fifth & np.uint32(1)) * sixteen) - 16))


class Q5_1(QuantType, qtype=GGMLQuantizationType.Q5_1):  # noqa: N801
    halves = (0, 2)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        width = out.shape[1] // 2
        for n in range(blocks.shape[0]):
            block, lower, upper = blocks[n], out[n, :16], out[n, 16:]
            scale, minimum, codes = half(block, 0), half(block, 2), block[8:24]
            low, high = bits_of(block, 4), bits_of(block, 6)
            for i in range(width):
                fifth, sixteen = np.uint32(i), np.uint32(16)
                lower[i] = (
                    scale * np.float32(np.uint8(codes[i] & 15 | (low >> fifth & np.uint32(1)) * sixteen)) + minimum
                )
                upper[i] = (
                    scale * np.float32(np.uint8(codes[i] >> 4 | (high >> fifth & np.uint32(1)) * sixteen)) + minimum
                )


class Q8_0(QuantType, qtype=GGMLQuantizationType.Q8_0):  # noqa: N801
    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale, codes = half(block, 0), block[2:34]
            for i in range(out.shape[1]):
                weights[i] = np.float32(np.int8(codes[i])) * scale
