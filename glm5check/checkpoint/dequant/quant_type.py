"""The registry of GGUF quant types: one class for each, its kernel compiled the first time it is needed.

A kernel is a plain loop over blocks that numba compiles to vector code. Numba was chosen by measurement: it reaches
the speed of llama.cpp's C on one thread, starts from its on-disk cache in milliseconds, and needs no compiler on the
machine (torch.compile does); plain torch or numpy needs a pass over memory for every shift and mask.
Kernels do the float32 operations of the reference in the same order, and numba neither reorders nor fuses them without
`fastmath`, so results are equal bit for bit. Only the payload of a NaN is not promised.

Numba's cache knows of changes in a kernel's own file only: after a change to what kernels of other files inline, as
`half` is, delete `__pycache__`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numba
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from glm5check.errors import CheckpointError

QUANT_TYPES: dict[GGMLQuantizationType, type[QuantType]] = {}
"""Every quant type that can be dequantised."""


class QuantType:
    """One GGUF quant type. Subclasses register themselves and supply `kernel`, and `tables` where it needs some.

    `kernel(blocks, out, *tables)` reads uint8 blocks [n, type_size] and writes float32 [n, block_size].
    """

    qtype: ClassVar[GGMLQuantizationType]
    block_size: ClassVar[int]
    """Weights in a block."""
    type_size: ClassVar[int]
    """Bytes in a block."""
    halves: ClassVar[tuple[int, ...]] = (0,)
    """Bytes of a block at which its half-precision scales and minima lie."""
    _compiled: ClassVar[Callable[..., None] | None] = None
    _tables: ClassVar[tuple[NDArray[np.generic], ...]] = ()

    def __init_subclass__(cls, *, qtype: GGMLQuantizationType | None) -> None:
        """`qtype=None` is a base of several types and is not registered."""
        if qtype is None:
            return
        assert qtype not in QUANT_TYPES, f"{qtype.name} has two classes"
        cls.qtype = qtype
        cls.block_size, cls.type_size = GGML_QUANT_SIZES[qtype]
        QUANT_TYPES[qtype] = cls

    @staticmethod
    def kernel(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        raise NotImplementedError

    @classmethod
    def tables(cls) -> tuple[NDArray[np.generic], ...]:
        """Constant arrays that the kernel gets after its blocks and its output."""
        return ()

    @classmethod
    def scales(cls, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The scales and minima of `blocks`, uint8 [n, type_size], as float32 [n, scales of a block].

        A block's weights are finite if and only if these are, short of overflow; they are all zero if these are.
        """
        fields = [np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16) for at in cls.halves]
        return np.concatenate(fields, axis=1).astype(np.float32)

    @classmethod
    def dequantise_blocks(cls, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        """Writes the weights of `blocks`, uint8 [n, type_size], to `out`, float32 [n, block_size]; both contiguous."""
        if cls._compiled is None:
            cls._compiled = compiled(cls.kernel)
            cls._tables = cls.tables()
        cls._compiled(blocks, out, *cls._tables)


def compiled(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The machine code of `kernel`: from numba's cache on disk, or without one where no directory can be written."""
    try:
        return numba.njit(kernel, cache=True, nogil=True)
    except RuntimeError:  # numba found no place for its cache
        return numba.njit(kernel, nogil=True)


def quant_type(qtype: GGMLQuantizationType | int) -> type[QuantType]:
    """The class of `qtype`; CheckpointError if it is unknown or cannot be dequantised."""
    try:
        return QUANT_TYPES[GGMLQuantizationType(qtype)]
    except (ValueError, KeyError):
        known = ", ".join(kind.name for kind in QUANT_TYPES)
        raise CheckpointError(f"quant type {qtype!r} cannot be dequantised", do=f"use one of {known}") from None


@numba.njit(inline="always")
def half(block: NDArray[np.uint8], at: int) -> np.float32:
    """The IEEE half at byte `at` of `block`, as float32."""
    bits = np.uint32(block[at]) | (np.uint32(block[at + 1]) << np.uint32(8))
    return half_of(bits)


@numba.njit(inline="always")
def half_of(bits: np.uint32) -> np.float32:
    """The float32 of 16 half bits: exact, NaN stays NaN.

    No arithmetic on float32 denormals, which a process may have switched to zero.
    """
    magnitude = np.uint32((bits & np.uint32(0x7FFF)) << np.uint32(13))
    # The exponent bias grows by 112. A half denormal counts steps of 2^-24: so do 10 bits of a float32 just over 2^-14.
    normal = np.uint32(magnitude + np.uint32(112 << 23)).view(np.float32)
    denormal = np.float32(np.uint32(magnitude + np.uint32(113 << 23)).view(np.float32) - np.float32(2.0**-14))
    special = np.uint32(magnitude | np.uint32(0x7F800000)).view(np.float32)
    value = denormal if magnitude < np.uint32(1 << 23) else normal
    value = special if magnitude >= np.uint32(31 << 23) else value
    return np.float32(-value) if bits & np.uint32(0x8000) else value
