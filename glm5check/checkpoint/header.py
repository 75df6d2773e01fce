"""The header of one GGUF file: metadata and tensor table, read with every count bounded before anything is allocated.

gguf-py's own reader allocates by counts that the file states; this one must survive any bytes. Layout: magic, version,
number of tensors, number of keys, keys with typed values, tensor infos, padding to the alignment, tensor data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from glm5check.errors import CheckpointError

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32

# Bounds of what is read into memory. The largest real header (150 k tokens, 320 k merges, 1,809 tensors) has 12 MB.
MAX_HEADER_BYTES: Final = 256 << 20
MAX_KEYS: Final = 1 << 16
MAX_TENSORS: Final = 1 << 17
MAX_STRINGS: Final = 1 << 21
MAX_NAME_BYTES: Final = 1 << 16
MAX_DIMENSIONS: Final = 4

_SCALARS: Final = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
}
_RECONVERT: Final = "download or convert the file again; compare its size and checksum with the source"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """One tensor as the table of its file declares it; that its bytes exist is checked elsewhere."""

    name: str
    qtype: GGMLQuantizationType
    shape: tuple[int, ...]
    """In weights, numpy order: (columns,), (rows, columns) or (experts or heads, rows, columns)."""
    file: Path
    offset: int
    """Bytes from the start of the file."""

    @property
    def columns(self) -> int:
        return self.shape[-1]

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def whole_blocks(self) -> bool:
        """Whether a row is a whole number of blocks. Only then do the byte counts below mean anything."""
        return self.columns % GGML_QUANT_SIZES[self.qtype][0] == 0

    @property
    def bytes_per_row(self) -> int:
        block, size = GGML_QUANT_SIZES[self.qtype]
        return self.columns // block * size

    @property
    def nbytes(self) -> int:
        block, size = GGML_QUANT_SIZES[self.qtype]
        return self.elements // block * size


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What one file says about itself."""

    file: Path
    size: int
    """Bytes of the file."""
    end: int
    """Bytes of the header, without the padding after it."""
    alignment: int
    metadata: dict[str, Any]
    """Scalars and strings; arrays of numbers as numpy arrays, arrays of strings as tuples."""
    tensors: tuple[TensorInfo, ...]


class _Cursor:
    """Reads a file forwards and refuses to go past its end or past the header bound."""

    def __init__(self, stream: BinaryIO, file: Path, size: int) -> None:
        self.stream, self.file, self.at = stream, file, 0
        self.limit = min(size, MAX_HEADER_BYTES)
        self.size = size
        self.strings = 0

    def wrong(self, what: str) -> CheckpointError:
        return CheckpointError(what, where=f"{self.file}, byte {self.at}", do=_RECONVERT)

    def take(self, count: int, what: str) -> bytes:
        if count > self.limit - self.at:
            end = "the end of the file" if self.limit == self.size else f"{MAX_HEADER_BYTES >> 20} MiB of header"
            raise self.wrong(f"{what} needs {count} bytes, which go past {end}")
        data = self.stream.read(count)
        if len(data) != count:
            raise self.wrong(f"the file shrank while {what} was read")
        self.at += count
        return data

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def count(self, bound: int, smallest: int, what: str) -> int:
        """A number of things of at least `smallest` bytes each."""
        number = self.u64(f"the number of {what}")
        if number > bound or number * smallest > self.limit - self.at:
            raise self.wrong(f"{number} {what} cannot be right (bound {bound}, {self.size} bytes of file)")
        return number

    def name(self, what: str) -> str:
        length = self.u64(f"the length of {what}")
        if length > MAX_NAME_BYTES:
            raise self.wrong(f"{what} claims {length} bytes")
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong(f"{what} is no UTF-8") from None

    def text(self, what: str) -> str:
        """A string value. Bytes that are no UTF-8 are shown escaped: a vocabulary may hold some."""
        self.strings += 1
        if self.strings > MAX_STRINGS:
            raise self.wrong(f"more than {MAX_STRINGS} strings in the metadata")
        return self.take(self.u64(f"the length of {what}"), what).decode("utf-8", "backslashreplace")


def read_header(file: Path) -> Header:
    """The header of `file`. CheckpointError if the file cannot be opened or is no well-formed GGUF."""
    try:
        size = file.stat().st_size
        with file.open("rb", buffering=1 << 20) as stream:
            return _parse(_Cursor(stream, file, size))
    except OSError as error:
        raise CheckpointError(
            f"cannot read the file: {error.strerror}", where=str(file), do="check the path and its permissions"
        ) from error


def _parse(cursor: _Cursor) -> Header:
    if (magic := cursor.take(4, "the magic")) != MAGIC:
        raise cursor.wrong(f"the file starts with {magic!r}, not with {MAGIC!r}: it is no GGUF")
    version = cursor.u32("the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        kind = "a big-endian file" if swapped in VERSIONS else f"GGUF version {version}"
        raise cursor.wrong(f"{kind} cannot be read, only little-endian versions {VERSIONS}")
    tensor_count = cursor.count(MAX_TENSORS, 24, "tensors")
    key_count = cursor.count(MAX_KEYS, 13, "keys")
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = cursor.name("a key")
        if key in metadata:
            raise cursor.wrong(f"key {key!r} occurs twice")
        metadata[key] = _value(cursor, key)
    alignment = _alignment(cursor, metadata)
    declared = [_tensor(cursor) for _ in range(tensor_count)]
    data_start = -(-cursor.at // alignment) * alignment
    tensors = tuple(
        TensorInfo(name=name, qtype=qtype, shape=shape, file=cursor.file, offset=data_start + offset)
        for name, qtype, shape, offset in declared
    )
    return Header(
        file=cursor.file,
        size=cursor.size,
        end=cursor.at,
        alignment=alignment,
        metadata=metadata,
        tensors=tensors,
    )


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 8 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise cursor.wrong(f"general.alignment is {alignment!r}, which is no power of two from 8 to 2^20")
    return alignment


def _value(cursor: _Cursor, key: str) -> Any:
    kind = _value_type(cursor, key)
    if kind == GGUFValueType.STRING:
        return cursor.text(key)
    if kind != GGUFValueType.ARRAY:
        scalar = np.dtype(_SCALARS[kind])
        return np.frombuffer(cursor.take(scalar.itemsize, key), scalar)[0].item()
    element = _value_type(cursor, key)
    if element == GGUFValueType.ARRAY:
        raise cursor.wrong(f"key {key!r} is an array of arrays, which no model needs")
    if element == GGUFValueType.STRING:
        count = cursor.count(MAX_STRINGS, 8, f"strings of {key}")
        return tuple(cursor.text(key) for _ in range(count))
    dtype = np.dtype(_SCALARS[element])
    count = cursor.count(MAX_HEADER_BYTES, dtype.itemsize, f"values of {key}")
    return np.frombuffer(cursor.take(count * dtype.itemsize, key), dtype)


def _value_type(cursor: _Cursor, key: str) -> GGUFValueType:
    code = cursor.u32(f"the type of {key}")
    try:
        return GGUFValueType(code)
    except ValueError:
        raise cursor.wrong(f"key {key!r} has unknown value type {code}") from None


def _tensor(cursor: _Cursor) -> tuple[str, GGMLQuantizationType, tuple[int, ...], int]:
    name = cursor.name("a tensor name")
    dimensions = cursor.u32(f"the number of dimensions of {name!r}")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise cursor.wrong(f"tensor {name!r} has {dimensions} dimensions, not 1 to {MAX_DIMENSIONS}")
    # The file gives the fastest running dimension first.
    shape = tuple(reversed(struct.unpack(f"<{dimensions}Q", cursor.take(8 * dimensions, f"the shape of {name!r}"))))
    if 0 in shape:
        raise cursor.wrong(f"tensor {name!r} has the empty shape {shape}")
    code = cursor.u32(f"the type of {name!r}")
    try:
        qtype = GGMLQuantizationType(code)
    except ValueError:
        raise cursor.wrong(f"tensor {name!r} has unknown quant type {code}") from None
    return name, qtype, shape, cursor.u64(f"the offset of {name!r}")
