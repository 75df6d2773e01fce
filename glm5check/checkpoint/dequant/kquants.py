"""K-quants: super-blocks of 256 weights whose sub-blocks have integer scales (and, in some, minima)."""

from __future__ import annotations

import numba
import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.checkpoint.dequant.quant_type import QuantType, half


class Q2_K(QuantType, qtype=GGMLQuantizationType.Q2_K):  # noqa: N801 (the name of the format)
    halves = (80, 82)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale, minimum = half(block, 80), half(block, 82)
            for sub in range(16):
                step = scale * np.float32(np.uint8(block[sub] & 15))
                offset = minimum * np.float32(np.uint8(block[sub] >> 4))
                codes = block[16 + 32 * (sub // 8) + 16 * (sub % 2) :]
                shift = np.uint8(2 * (sub // 2 % 4))
                for i in range(16):
                    weights[16 * sub + i] = step * np.float32(np.uint8(codes[i] >> shift & 3)) - offset


class Q3_K(QuantType, qtype=GGMLQuantizationType.Q3_K):  # noqa: N801
    halves = (108,)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 108)
            for sub in range(16):
                low = block[96 + sub % 8] >> (sub // 8 * 4) & 15
                high = block[104 + sub % 4] >> (sub // 4 * 2) & 3
                step = scale * np.float32(np.int8((low | high << 4) - 32))
                codes = block[32 + 32 * (sub // 8) + 16 * (sub % 2) :]
                masks = block[16 * (sub % 2) :]
                shift, bit = np.uint8(2 * (sub // 2 % 4)), np.uint8(sub // 2)
                for i in range(16):
                    # The mask bit says that 4 is NOT subtracted.
                    code = (codes[i] >> shift & 3) - (~masks[i] >> bit & 1) * 4
                    weights[16 * sub + i] = step * np.float32(np.int8(code))


@numba.njit(inline="always")
def scale_and_minimum(packed: NDArray[np.uint8], sub: int) -> tuple[np.uint8, np.uint8]:
    """6-bit scale and minimum of sub-block `sub` from the 12 bytes that Q4_K and Q5_K share.

    Sub-blocks 0-3 lie in the low bits of bytes 0-3 and 4-7; 4-7 have four bits in bytes 8-11, two on top of the former.
    """
    if sub < 4:
        return np.uint8(packed[sub] & 63), np.uint8(packed[sub + 4] & 63)
    low, scale, minimum = packed[sub + 4], packed[sub - 4], packed[sub]
    return np.uint8(low & 15 | scale >> 2 & 48), np.uint8(low >> 4 | minimum >> 2 & 48)


class Q4_K(QuantType, qtype=GGMLQuantizationType.Q4_K):  # noqa: N801
    halves = (0, 2)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale, minimum = half(block, 0), half(block, 2)
            for pair in range(4):
                codes = block[16 + 32 * pair :]
                for nibble in range(2):
                    sub = 2 * pair + nibble
                    factor, floor = scale_and_minimum(block[4:16], sub)
                    step, offset = scale * np.float32(factor), minimum * np.float32(floor)
                    shift = np.uint8(4 * nibble)
                    for i in range(32):
                        weights[32 * sub + i] = step * np.float32(np.uint8(codes[i] >> shift & 15)) - offset


class Q5_K(QuantType, qtype=GGMLQuantizationType.Q5_K):  # noqa: N801
    halves = (0, 2)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale, minimum = half(block, 0), half(block, 2)
            fifth = block[16:48]
            for pair in range(4):
                codes = block[48 + 32 * pair :]
                for nibble in range(2):
                    sub = 2 * pair + nibble
                    factor, floor = scale_and_minimum(block[4:16], sub)
                    step, offset = scale * np.float32(factor), minimum * np.float32(floor)
                    shift, bit = np.uint8(4 * nibble), np.uint8(sub)
                    for i in range(32):
                        code = codes[i] >> shift & 15 | (fifth[i] >> bit & 1) << 4
                        weights[32 * sub + i] = step * np.float32(np.uint8(code)) - offset


class Q6_K(QuantType, qtype=GGMLQuantizationType.Q6_K):  # noqa: N801
    halves = (208,)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 208)
            for sub in range(16):
                step = scale * np.float32(np.int8(block[192 + sub]))
                quarter = sub // 2 % 4
                low = block[64 * (sub // 8) + 32 * (quarter % 2) + 16 * (sub % 2) :]
                high = block[128 + 32 * (sub // 8) + 16 * (sub % 2) :]
                shift, bits = np.uint8(4 * (quarter // 2)), np.uint8(2 * quarter)
                for i in range(16):
                    code = (low[i] >> shift & 15 | (high[i] >> bits & 3) << 4) - 32
                    weights[16 * sub + i] = step * np.float32(np.int8(code))
