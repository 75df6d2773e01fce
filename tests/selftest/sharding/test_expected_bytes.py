"""The bytes that a rank must hold of little float tensors, whose every number is known."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Q

from fixtures.strategies import ordinary_rows
from glm5check.checkpoint.dequant import dequantise
from glm5check.checkpoint.header import TensorInfo
from glm5check.sharding import expected
from glm5check.sharding.expected import absorbed_chunks, assembled, digest, float_chunks, raw_chunks
from glm5check.sharding.partition import Parameter, Piece


def info(name, shape, qtype=Q.F32):
    return TensorInfo(name=name, qtype=qtype, shape=shape, file=Path("x"), offset=0)


def numbered(*shape):
    """Float32 weights 0, 1, 2, ... as a set gives them: bytes of rows."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape).view(np.uint8)


def as_floats(chunks):
    return assembled(chunks).view(np.float32).tolist()


WHOLE = numbered(4, 3)
MATRIX = Piece(tensor=info("a", (4, 3)), rows=range(1, 3), columns=range(1, 3))
SHORT = Piece(tensor=info("b", (2, 1)), rows=range(2), columns=range(1), padding=2)
MERGED = Parameter(module="m", kind="linear", pieces=(MATRIX, SHORT))
RAW = {"a": WHOLE, "b": numbered(2, 1) + 0, "e": numbered(2, 3, 2)}.__getitem__


def test_parts_follow_each_other_and_shorter_rows_are_filled_with_zeros():
    assert as_floats(raw_chunks(MERGED, RAW)) == [[4, 5], [7, 8], [0, 0], [1, 0], [0, 0], [0, 0]]


def test_as_floats_every_part_has_its_own_width():
    chunks = [chunk.tolist() for chunk in float_chunks(MERGED, RAW, "float32")]
    assert chunks == [[[4, 5], [7, 8]], [[0], [1]], [[0], [0]]]


def test_experts_come_one_after_the_other_with_all_their_parts():
    first = Piece(tensor=info("e", (2, 3, 2)), rows=range(1, 3), columns=range(2))
    second = Piece(tensor=info("e", (2, 3, 2)), rows=range(1), columns=range(2), padding=1)
    stacked = Parameter(module="m", kind="experts", pieces=(first, second))
    rows = [[2, 3], [4, 5], [0, 1], [0, 0], [8, 9], [10, 11], [6, 7], [0, 0]]
    assert as_floats(raw_chunks(stacked, RAW)) == rows
    assert assembled(float_chunks(stacked, RAW, "float32")).tolist() == rows


@pytest.mark.parametrize("chunks", [raw_chunks, lambda held, raw: float_chunks(held, raw, "float32")])
def test_rows_come_in_chunks_that_leave_none_out(monkeypatch, chunks):
    monkeypatch.setattr(expected, "CHUNK_ROWS", 2)
    piece = Piece(tensor=info("a", (7, 1)), rows=range(1, 6), columns=range(1))
    held = Parameter(module="m", kind="linear", pieces=(piece,))
    found = [
        np.ascontiguousarray(chunk).view(np.float32).reshape(-1).tolist()
        for chunk in chunks(held, {"a": numbered(7, 1)}.get)
    ]
    assert found == [[1, 2], [3, 4], [5]]


def test_a_vector_is_one_row():
    piece = Piece(tensor=info("v", (3,)), rows=range(1), columns=range(3))
    held = Parameter(module="norm", kind="vector", pieces=(piece,))
    assert as_floats(raw_chunks(held, lambda _: numbered(3))) == [[0, 1, 2]]
    assert assembled(float_chunks(held, lambda _: numbered(3), "float32")).tolist() == [[0, 1, 2]]


KEYS, VALUES = numbered(3, 2, 4), numbered(3, 5, 2) + 0
KV_B = Parameter(
    module="kv_b",
    kind="heads",
    pieces=(
        Piece(tensor=info("k", (3, 2, 4)), rows=range(2), columns=range(4), heads=range(1, 3)),
        Piece(tensor=info("v", (3, 5, 2)), rows=range(5), columns=range(2), heads=range(1, 3)),
    ),
)
OF_KV_B = {"k": KEYS, "v": VALUES}.__getitem__


def test_kv_b_has_for_each_head_its_transposed_keys_and_then_its_values():
    found = [chunk.tolist() for chunk in float_chunks(KV_B, OF_KV_B, "float32")]
    keys, values = KEYS.view(np.float32), VALUES.view(np.float32)
    assert found == [keys[1].T.tolist(), values[1].tolist(), keys[2].T.tolist(), values[2].tolist()]


@pytest.mark.parametrize(("which", "stored"), [("W_UK_T", KEYS), ("W_UV", VALUES)])
def test_absorbed_matrices_are_the_stored_ones_transposed_head_by_head(which, stored):
    found = list(absorbed_chunks(KV_B, OF_KV_B, "float32", which))
    assert [chunk.tolist() for chunk in found] == [stored.view(np.float32)[head].T.tolist() for head in (1, 2)]
    assert all(chunk.flags.c_contiguous for chunk in found)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_quantised_weights_are_rounded_to_the_type_that_is_held(dtype):
    raw = ordinary_rows(Q.Q8_0, rows=2, blocks=2)
    piece = Piece(tensor=info("q", (2, 64), Q.Q8_0), rows=range(2), columns=range(32, 64), padding=1)
    held = Parameter(module="m", kind="linear", pieces=(piece,))
    want = dequantise(raw[:, 34:], Q.Q8_0, out=dtype)
    rows, padding = float_chunks(held, lambda _: raw, dtype)
    assert np.array_equal(rows, want)
    assert rows.dtype == padding.dtype == want.dtype
    assert padding.shape == (1, 32)
    assert not padding.any()
    heads = ordinary_rows(Q.Q8_0, rows=3, blocks=1).reshape(3, 1, 34)
    one = Piece(tensor=info("k", (3, 1, 32), Q.Q8_0), rows=range(1), columns=range(32), heads=range(2, 3))
    both = Parameter(module="kv_b", kind="heads", pieces=(one, one))
    want = dequantise(heads[2], Q.Q8_0, out=dtype)
    for chunks in (float_chunks(both, lambda _: heads, dtype), absorbed_chunks(both, lambda _: heads, dtype, "W_UV")):
        first, *rest = chunks
        assert np.array_equal(first, want.T)
        assert all(np.array_equal(second, want) for second in rest)
        assert first.dtype == want.dtype


def test_a_digest_is_of_all_bytes_in_their_order():
    first, second = np.array([[1, 2], [3, 4]], np.uint8), np.array([[5]], np.uint8)
    assert digest(iter([first, second])) == hashlib.sha256(bytes([1, 2, 3, 4, 5])).hexdigest()
    assert digest(iter([first.T])) == hashlib.sha256(bytes([1, 3, 2, 4])).hexdigest()
