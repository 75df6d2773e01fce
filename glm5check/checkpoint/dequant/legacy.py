"""Quant types of 32 weights with one half-precision scale (and, in the `_1` types, a minimum)."""

from __future__ import annotations

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.checkpoint.dequant.quant_type import QuantType, half


class Q4_0(QuantType, qtype=GGMLQuantizationType.Q4_0):  # noqa: N801 (the name of the format)
    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for i in range(16):
                code = block[2 + i]
                weights[i] = scale * np.float32(np.int8((code & 15) - 8))
                weights[16 + i] = scale * np.float32(np.int8((code >> 4) - 8))


class Q4_1(QuantType, qtype=GGMLQuantizationType.Q4_1):  # noqa: N801
    halves = (0, 2)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale, minimum = half(block, 0), half(block, 2)
            for i in range(16):
                code = block[4 + i]
                weights[i] = scale * np.float32(np.uint8(code & 15)) + minimum
                weights[16 + i] = scale * np.float32(np.uint8(code >> 4)) + minimum


class Q5_0(QuantType, qtype=GGMLQuantizationType.Q5_0):  # noqa: N801
    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for i in range(16):
                code = block[6 + i]
                fifth = block[2 + (i >> 3)] >> (i & 7) & 1
                weights[i] = scale * np.float32(np.int8((code & 15 | fifth << 4) - 16))
                fifth = block[4 + (i >> 3)] >> (i & 7) & 1
                weights[16 + i] = scale * np.float32(np.int8((code >> 4 | fifth << 4) - 16))


class Q5_1(QuantType, qtype=GGMLQuantizationType.Q5_1):  # noqa: N801
    halves = (0, 2)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale, minimum = half(block, 0), half(block, 2)
            for i in range(16):
                code = block[8 + i]
                fifth = block[4 + (i >> 3)] >> (i & 7) & 1
                weights[i] = scale * np.float32(np.uint8(code & 15 | fifth << 4)) + minimum
                fifth = block[6 + (i >> 3)] >> (i & 7) & 1
                weights[16 + i] = scale * np.float32(np.uint8(code >> 4 | fifth << 4)) + minimum


class Q8_0(QuantType, qtype=GGMLQuantizationType.Q8_0):  # noqa: N801
    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for i in range(32):
                weights[i] = np.float32(np.int8(block[2 + i])) * scale
