"""I-quants: super-blocks of 256 weights that index grids of 8 or 4 values, with separate signs or a shift."""

from __future__ import annotations

import gguf.quants
import numba
import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.checkpoint.dequant.grids import even_signs, grid, signs
from glm5check.checkpoint.dequant.quant_type import QuantType, half, half_of

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@numba.njit(inline="always")
def word(block: Bytes, at: int) -> np.uint32:
    """The little-endian 16 bits at byte `at`."""
    return np.uint32(block[at]) | np.uint32(block[at + 1]) << np.uint32(8)


class IQ2_XXS(QuantType, qtype=GGMLQuantizationType.IQ2_XXS):  # noqa: N801 (the name of the format)
    @classmethod
    def tables(cls) -> tuple[Floats, ...]:
        return grid(gguf.quants.IQ2_XXS), even_signs()

    @staticmethod
    def kernel(blocks: Bytes, out: Floats, points: Floats, factors: Floats) -> None:  # type: ignore[override]
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for group in range(8):
                at = 2 + 8 * group
                packed = word(block, at + 4) | word(block, at + 6) << np.uint32(16)
                step = scale * (np.float32(0.5) + np.float32(packed >> np.uint32(28))) * np.float32(0.25)
                for part in range(4):
                    point = points[block[at + part]]
                    factor = factors[packed >> np.uint32(7 * part) & np.uint32(127)]
                    for i in range(8):
                        weights[32 * group + 8 * part + i] = step * point[i] * factor[i]


class IQ2_XS(QuantType, qtype=GGMLQuantizationType.IQ2_XS):  # noqa: N801
    @classmethod
    def tables(cls) -> tuple[Floats, ...]:
        return grid(gguf.quants.IQ2_XS), even_signs()

    @staticmethod
    def kernel(blocks: Bytes, out: Floats, points: Floats, factors: Floats) -> None:  # type: ignore[override]
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for sub in range(16):
                nibble = block[66 + sub // 2] >> (4 * (sub % 2)) & 15
                step = scale * (np.float32(0.5) + np.float32(nibble)) * np.float32(0.25)
                for part in range(2):
                    packed = word(block, 2 + 4 * sub + 2 * part)
                    point, factor = points[packed & np.uint32(511)], factors[packed >> np.uint32(9)]
                    for i in range(8):
                        weights[16 * sub + 8 * part + i] = step * point[i] * factor[i]


class IQ2_S(QuantType, qtype=GGMLQuantizationType.IQ2_S):  # noqa: N801
    @classmethod
    def tables(cls) -> tuple[Floats, ...]:
        return grid(gguf.quants.IQ2_S), signs()

    @staticmethod
    def kernel(blocks: Bytes, out: Floats, points: Floats, factors: Floats) -> None:  # type: ignore[override]
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for sub in range(16):
                nibble = block[74 + sub // 2] >> (4 * (sub % 2)) & 15
                step = scale * (np.float32(0.5) + np.float32(nibble)) * np.float32(0.25)
                for part in range(2):
                    at = 2 * sub + part
                    high = np.uint32(block[66 + at // 4] >> (2 * (at % 4)) & 3)
                    point = points[np.uint32(block[2 + at]) | high << np.uint32(8)]
                    factor = factors[block[34 + at]]
                    for i in range(8):
                        weights[8 * at + i] = step * point[i] * factor[i]


class IQ3_XXS(QuantType, qtype=GGMLQuantizationType.IQ3_XXS):  # noqa: N801
    @classmethod
    def tables(cls) -> tuple[Floats, ...]:
        return grid(gguf.quants.IQ3_XXS), even_signs()

    @staticmethod
    def kernel(blocks: Bytes, out: Floats, points: Floats, factors: Floats) -> None:  # type: ignore[override]
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for group in range(8):
                at = 66 + 4 * group
                packed = word(block, at) | word(block, at + 2) << np.uint32(16)
                step = scale * (np.float32(0.5) + np.float32(packed >> np.uint32(28))) * np.float32(0.5)
                for part in range(4):
                    code = 2 + 8 * group + 2 * part
                    first, second = points[block[code]], points[block[code + 1]]
                    factor = factors[packed >> np.uint32(7 * part) & np.uint32(127)]
                    place = 32 * group + 8 * part
                    for i in range(4):
                        weights[place + i] = step * first[i] * factor[i]
                        weights[place + 4 + i] = step * second[i] * factor[4 + i]


class IQ3_S(QuantType, qtype=GGMLQuantizationType.IQ3_S):  # noqa: N801
    @classmethod
    def tables(cls) -> tuple[Floats, ...]:
        return grid(gguf.quants.IQ3_S), signs()

    @staticmethod
    def kernel(blocks: Bytes, out: Floats, points: Floats, factors: Floats) -> None:  # type: ignore[override]
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for group in range(8):
                nibble = block[106 + group // 2] >> (4 * (group % 2)) & 15
                step = scale * np.float32(1 + 2 * nibble)
                ninth = np.uint32(block[66 + group])
                for part in range(4):
                    code = 2 + 8 * group + 2 * part
                    high = ninth >> np.uint32(2 * part)
                    first = points[np.uint32(block[code]) | (high & np.uint32(1)) << np.uint32(8)]
                    second = points[np.uint32(block[code + 1]) | (high & np.uint32(2)) << np.uint32(7)]
                    factor = factors[block[74 + 4 * group + part]]
                    place = 32 * group + 8 * part
                    for i in range(4):
                        weights[place + i] = step * first[i] * factor[i]
                        weights[place + 4 + i] = step * second[i] * factor[4 + i]


class IQ1_S(QuantType, qtype=GGMLQuantizationType.IQ1_S):  # noqa: N801
    @classmethod
    def tables(cls) -> tuple[Floats, ...]:
        return (grid(gguf.quants.IQ1_S),)

    @staticmethod
    def kernel(blocks: Bytes, out: Floats, points: Floats) -> None:  # type: ignore[override]
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for group in range(8):
                packed = word(block, 34 + 2 * group)
                step = scale * np.float32(np.uint32(2) * (packed >> np.uint32(12) & np.uint32(7)) + np.uint32(1))
                delta = np.float32(-0.125) if packed & np.uint32(0x8000) else np.float32(0.125)
                for part in range(4):
                    high = packed >> np.uint32(3 * part) & np.uint32(7)
                    point = points[np.uint32(block[2 + 4 * group + part]) | high << np.uint32(8)]
                    for i in range(8):
                        weights[32 * group + 8 * part + i] = step * (point[i] + delta)


class IQ1_M(QuantType, qtype=GGMLQuantizationType.IQ1_M):  # noqa: N801
    """The one type whose half-precision scale is scattered: a nibble on top of each of four scale words."""

    @classmethod
    def scales(cls, blocks: Bytes) -> Floats:
        nibbles = blocks[:, 49::2].astype(np.uint16) >> 4 << np.arange(0, 16, 4, dtype=np.uint16)
        return np.bitwise_or.reduce(nibbles, axis=1, keepdims=True).view(np.float16).astype(np.float32)

    @classmethod
    def tables(cls) -> tuple[Floats, ...]:
        return (grid(gguf.quants.IQ1_M),)

    @staticmethod
    def kernel(blocks: Bytes, out: Floats, points: Floats) -> None:  # type: ignore[override]
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            bits = np.uint32(0)
            for i in range(4):
                bits |= np.uint32(block[49 + 2 * i] >> 4) << np.uint32(4 * i)
            scale = half_of(bits)
            for sub in range(16):
                packed = word(block, 48 + 2 * (sub // 4)) >> np.uint32(3 * (sub % 4)) & np.uint32(7)
                step = scale * np.float32(np.uint32(2) * packed + np.uint32(1))
                for part in range(2):
                    high = np.uint32(block[32 + sub] >> (4 * part))
                    point = points[np.uint32(block[2 * sub + part]) | (high & np.uint32(7)) << np.uint32(8)]
                    delta = np.float32(-0.125) if high & np.uint32(8) else np.float32(0.125)
                    for i in range(8):
                        weights[16 * sub + 8 * part + i] = step * (point[i] + delta)
