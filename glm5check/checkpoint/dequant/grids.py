"""Constant tables of the I-quants: gguf-py's published grids, unpacked once from their packed text, and sign masks."""

from __future__ import annotations

from functools import cache
from typing import Any

import gguf.quants
import numpy as np
from numpy.typing import NDArray


@cache
def grid(published: Any) -> NDArray[np.float32]:
    """The grid of a class of `gguf.quants`, float32 [points, values a point].

    `grid_hex` is text: bytes in hexadecimal, each holding as many codes as fit, the lowest bits first; `grid_map` gives
    the value of a code.
    """
    bits = (len(published.grid_map) - 1).bit_length()
    bits = 2 if bits <= 2 else 4
    packed = np.frombuffer(bytes.fromhex(published.grid_hex.decode("ascii")), np.uint8)
    codes = packed[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    return np.array(published.grid_map, np.float32)[codes].reshape(published.grid_shape)


@cache
def signs() -> NDArray[np.float32]:
    """The eight factors, 1 or -1, of every sign byte, float32 [256, 8]: bit j set means that weight j is negative."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    return (1 - 2 * bits).astype(np.float32)


@cache
def even_signs() -> NDArray[np.float32]:
    """The factors of a 7-bit sign index, float32 [128, 8]: the eighth sign makes the number of minus signs even."""
    return signs()[np.frombuffer(gguf.quants.IQ2_XXS.ksigns, np.uint8)]
