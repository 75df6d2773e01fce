"""Four-bit types whose codes index a table of 16 values."""

from __future__ import annotations

import gguf.quants
import numba
import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.checkpoint.dequant.quant_type import QuantType, half


class IQ4_NL(QuantType, qtype=GGMLQuantizationType.IQ4_NL):  # noqa: N801 (the name of the format)
    @classmethod
    def tables(cls) -> tuple[NDArray[np.generic], ...]:
        return (np.array(gguf.quants.IQ4_NL.kvalues, np.float32),)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32], values: NDArray[np.float32]) -> None:  # type: ignore[override]
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for i in range(16):
                weights[i] = scale * values[block[2 + i] & 15]
                weights[16 + i] = scale * values[block[2 + i] >> 4]


class IQ4_XS(QuantType, qtype=GGMLQuantizationType.IQ4_XS):  # noqa: N801
    tables = IQ4_NL.tables

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32], values: NDArray[np.float32]) -> None:  # type: ignore[override]
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half(block, 0)
            for sub in range(8):
                low = block[4 + sub // 2] >> (4 * (sub % 2)) & 15
                high = block[2 + sub // 4] >> (2 * (sub % 4)) & 3
                step = scale * np.float32(np.int8((low | high << 4) - 32))
                for i in range(16):
                    code = block[8 + 16 * sub + i]
                    weights[32 * sub + i] = step * values[code & 15]
                    weights[32 * sub + 16 + i] = step * values[code >> 4]


@numba.njit(inline="always")
def half_of_e8m0(exponent: np.uint8) -> np.float32:
    """2^(exponent - 128) as float32, denormal for the two smallest: the values of MXFP4 are stored doubled."""
    if exponent < 2:
        return np.uint32(np.uint32(0x00200000) << np.uint32(exponent)).view(np.float32)
    return np.uint32(np.uint32(exponent - 1) << np.uint32(23)).view(np.float32)


class MXFP4(QuantType, qtype=GGMLQuantizationType.MXFP4):
    @classmethod
    def scales(cls, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
        return np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)

    @classmethod
    def tables(cls) -> tuple[NDArray[np.generic], ...]:
        return (np.array(gguf.quants.MXFP4.kvalues, np.float32),)

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32], values: NDArray[np.float32]) -> None:  # type: ignore[override]
        for n in range(blocks.shape[0]):
            block, weights = blocks[n], out[n]
            scale = half_of_e8m0(block[0])
            for i in range(16):
                weights[i] = scale * values[block[1 + i] & 15]
                weights[16 + i] = scale * values[block[1 + i] >> 4]
