"""Rounding of float32 to the 16-bit types, ties to even: numpy lacks bfloat16, and its float16 is 100 times slower."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glm5check.checkpoint.dequant.quant_type import compiled


def _to_bfloat16(wide: NDArray[np.uint32], narrow: NDArray[np.uint16]) -> None:
    for n in range(wide.size):
        bits = wide[n]
        is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        rounded = np.uint32(bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))
        # A NaN whose payload lies in the low half would round to infinity: keep it quiet instead.
        narrow[n] = np.uint16((np.uint32(bits | np.uint32(0x00400000)) if is_nan else rounded) >> np.uint32(16))


def _to_float16(wide: NDArray[np.uint32], narrow: NDArray[np.uint16]) -> None:
    for n in range(wide.size):
        magnitude = np.uint32(wide[n] & np.uint32(0x7FFFFFFF))
        # Below 2^-14 a half has a fixed step of 2^-24: adding 0.5, whose own step that is, rounds to it.
        small = np.uint32(
            np.float32(magnitude.view(np.float32) + np.float32(0.5)).view(np.uint32) - np.uint32(0x3F000000)
        )
        # Else the exponent bias falls by 112, and 13 bits of the significand are rounded away.
        odd = magnitude >> np.uint32(13) & np.uint32(1)
        normal = np.uint32(magnitude - np.uint32(112 << 23) + np.uint32(0xFFF) + odd) >> np.uint32(13)
        large = np.uint32(0x7E00) if magnitude > np.uint32(0x7F800000) else np.uint32(0x7C00)
        value = small if magnitude < np.uint32(0x38800000) else normal
        value = large if magnitude >= np.uint32(0x47800000) else value
        narrow[n] = np.uint16(value | (wide[n] >> np.uint32(16) & np.uint32(0x8000)))


_compiled = {np.dtype(np.uint16): compiled(_to_bfloat16), np.dtype(np.float16): compiled(_to_float16)}


def narrowed(wide: NDArray[np.float32], narrow: NDArray[Any]) -> None:
    """Writes each of `wide`, rounded, to `narrow`: float16, or uint16 for the bits of a bfloat16; both C-contiguous."""
    _compiled[narrow.dtype](wide.view(np.uint32).ravel(), narrow.view(np.uint16).ravel())
