"""The bytes that a rank must hold, streamed out of the GGUF files in bounded memory, and their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glm5check.checkpoint.dequant import dequantise
from glm5check.sharding.partition import Parameter, Piece

Raw = Callable[[str], NDArray[np.uint8]]
"""Gives the bytes of a tensor of the set, uint8 [..., bytes of a row]: `GgufSet.raw`."""

CHUNK_ROWS: Final = 4096
"""Rows that are in memory at a time: 100 MB of the widest row of GLM-5 in float32."""


def raw_chunks(parameter: Parameter, raw: Raw) -> Iterator[NDArray[np.uint8]]:
    """The parameter as raw quantised bytes, in its order: uint8 [rows, row_bytes] at a time."""
    width = parameter.row_bytes
    for expert in range(parameter.experts):
        for piece in parameter.pieces:
            rows = raw(piece.tensor.name)
            rows = rows[expert] if parameter.kind == "experts" else rows.reshape(-1, rows.shape[-1])
            held = piece.column_bytes
            for part in _row_chunks(piece):
                yield _widened(rows[part.start : part.stop, held.start : held.stop], width)
            if piece.padding:
                yield np.zeros((piece.padding, width), np.uint8)


def float_chunks(parameter: Parameter, raw: Raw, dtype: str) -> Iterator[NDArray[Any]]:
    """The parameter dequantised and rounded to `dtype`, in its order: [rows, columns] at a time.

    kv_b comes as HF has it: for each head its key rows, then its value rows.
    """
    if parameter.kind == "heads":
        yield from _kv_b_chunks(parameter, raw, dtype)
        return
    for expert in range(parameter.experts):
        for piece in parameter.pieces:
            rows = raw(piece.tensor.name)
            rows = rows[expert] if parameter.kind == "experts" else rows.reshape(-1, rows.shape[-1])
            held = piece.column_bytes
            for part in _row_chunks(piece):
                chosen = rows[part.start : part.stop, held.start : held.stop]
                yield dequantise(chosen, piece.tensor.qtype, out=_output(dtype))
            if piece.padding:
                yield dequantise(np.zeros((piece.padding, 4 * len(piece.columns)), np.uint8), 0, out=_output(dtype))


def absorbed_chunks(parameter: Parameter, raw: Raw, dtype: str, which: str) -> Iterator[NDArray[Any]]:
    """The two matrices that latent attention makes of kv_b at load time, head by head.

    `W_UK_T` [heads, nope, kv_lora] turns a query into the latent space, `W_UV` [heads, kv_lora, value] turns a latent
    result into values: the stored tensors with their last two axes exchanged.
    """
    piece = parameter.pieces[0 if which == "W_UK_T" else 1]
    assert piece.heads is not None
    tensor = raw(piece.tensor.name)
    for head in piece.heads:
        yield np.ascontiguousarray(dequantise(tensor[head], piece.tensor.qtype, out=_output(dtype)).T)


def digest(chunks: Iterator[NDArray[Any]]) -> str:
    """SHA-256 of the chunks' bytes one after the other."""
    total = hashlib.sha256()
    for chunk in chunks:
        total.update(np.ascontiguousarray(chunk).data)
    return total.hexdigest()


def assembled(chunks: Iterator[NDArray[Any]]) -> NDArray[Any]:
    """All chunks in one array, for parameters that are known to be small."""
    return np.concatenate(list(chunks))


def _row_chunks(piece: Piece) -> Iterator[range]:
    for first in range(piece.rows.start, piece.rows.stop, CHUNK_ROWS):
        yield range(first, min(first + CHUNK_ROWS, piece.rows.stop))


def _widened(rows: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    if rows.shape[1] == width:
        return rows
    wide = np.zeros((len(rows), width), np.uint8)
    wide[:, : rows.shape[1]] = rows
    return wide


def _kv_b_chunks(parameter: Parameter, raw: Raw, dtype: str) -> Iterator[NDArray[Any]]:
    keys, values = parameter.pieces
    assert keys.heads is not None
    stored_keys, stored_values = raw(keys.tensor.name), raw(values.tensor.name)
    for head in keys.heads:
        yield dequantise(stored_keys[head], keys.tensor.qtype, out=_output(dtype)).T
        yield dequantise(stored_values[head], values.tensor.qtype, out=_output(dtype))


def _output(dtype: str) -> Any:
    return dtype
