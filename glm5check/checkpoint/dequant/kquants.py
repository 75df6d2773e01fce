"""K-quants: super-blocks of 256 weights whose sub-blocks have integer scales (and, in some, minima).

Inner loops run over 32 weights, also where a sub-block is 16: numba vectorises those, but unrolls shorter ones.
"""

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
            block = blocks[n]
            scale, minimum = half(block, 80), half(block, 82)
            for run in range(8):
                weights = out[n, 32 * run : 32 * run + 32]
                codes = block[16 + 32 * (run // 4) : 48 + 32 * (run // 4)]
                shift = np.uint8(2 * (run % 4))
                first, second = block[2 * run], block[2 * run + 1]
                step, offset = scale * np.float32(np.uint8(first & 15)), minimum * np.float32(np.uint8(first >> 4))
                step_2, offset_2 = (
                    scale * np.float32(np.uint8(second & 15)),
                    minimum * np.float32(np.uint8(second >> 4)),
                )
                for i in range(32):
                    code = np.float32(np.uint8(codes[i] >> shift & 3))
                    weights[i] = (step if i < 16 else step_2) * code - (offset if i < 16 else offset_2)


class Q3_K(QuantType, qtype=GGMLQuantizationType.Q3_K):  # noqa: N801
    halves = (108,)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        steps = np.empty(16, np.float32)
        for n in range(blocks.shape[0]):
            block = blocks[n]
            scale = half(block, 108)
            for sub in range(16):
                low = block[96 + sub % 8] >> (sub // 8 * 4) & 15
                high = block[104 + sub % 4] >> (sub // 4 * 2) & 3
                steps[sub] = scale * np.float32(np.int8((low | high << 4) - 32))
            masks = block[:32]
            for run in range(8):
                weights = out[n, 32 * run : 32 * run + 32]
                codes = block[32 + 32 * (run // 4) : 64 + 32 * (run // 4)]
                shift, bit = np.uint8(2 * (run % 4)), np.uint8(run)
                step, step_2 = steps[2 * run], steps[2 * run + 1]
                for i in range(32):
                    # The mask bit says that 4 is NOT subtracted.
                    code = (codes[i] >> shift & 3) - (~masks[i] >> bit & 1) * 4
                    weights[i] = (step if i < 16 else step_2) * np.float32(np.int8(code))


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
            block = blocks[n]
            scale, minimum = half(block, 0), half(block, 2)
            for pair in range(4):
                lower, upper = out[n, 64 * pair : 64 * pair + 32], out[n, 64 * pair + 32 : 64 * pair + 64]
                codes = block[16 + 32 * pair : 48 + 32 * pair]
                factor, floor = scale_and_minimum(block[4:16], 2 * pair)
                factor_2, floor_2 = scale_and_minimum(block[4:16], 2 * pair + 1)
                step, offset = scale * np.float32(factor), minimum * np.float32(floor)
                step_2, offset_2 = scale * np.float32(factor_2), minimum * np.float32(floor_2)
                for i in range(32):
                    lower[i] = step * np.float32(np.uint8(codes[i] & 15)) - offset
                    upper[i] = step_2 * np.float32(np.uint8(codes[i] >> 4)) - offset_2


class Q5_K(QuantType, qtype=GGMLQuantizationType.Q5_K):  # noqa: N801
    halves = (0, 2)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block = blocks[n]
            scale, minimum = half(block, 0), half(block, 2)
            fifth = block[16:48]
            for sub in range(8):
                weights = out[n, 32 * sub : 32 * sub + 32]
                codes = block[48 + 32 * (sub // 2) : 80 + 32 * (sub // 2)]
                factor, floor = scale_and_minimum(block[4:16], sub)
                step, offset = scale * np.float32(factor), minimum * np.float32(floor)
                shift, bit = np.uint8(4 * (sub % 2)), np.uint8(sub)
                for i in range(32):
                    code = codes[i] >> shift & 15 | (fifth[i] >> bit & 1) << 4
                    weights[i] = step * np.float32(np.uint8(code)) - offset


class Q6_K(QuantType, qtype=GGMLQuantizationType.Q6_K):  # noqa: N801
    halves = (208,)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block = blocks[n]
            scale = half(block, 208)
            for run in range(8):
                weights = out[n, 32 * run : 32 * run + 32]
                quarter = run % 4
                start = 64 * (run // 4) + 32 * (quarter % 2)
                low, high = block[start : start + 32], block[128 + 32 * (run // 4) : 160 + 32 * (run // 4)]
                shift, bits = np.uint8(4 * (quarter // 2)), np.uint8(2 * quarter)
                step = scale * np.float32(np.int8(block[192 + 2 * run]))
                step_2 = scale * np.float32(np.int8(block[193 + 2 * run]))
                for i in range(32):
                    code = (low[i] >> shift & 15 | (high[i] >> bits & 3) << 4) - 32
                    weights[i] = (step if i < 16 else step_2) * np.float32(np.int8(code))
