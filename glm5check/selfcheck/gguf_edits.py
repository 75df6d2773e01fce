"""Spoils GGUF files in place, without moving a byte of what follows: another type, shape, name or value."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from gguf.constants import GGMLQuantizationType

from glm5check.checkpoint.header import TensorInfo
from glm5check.checkpoint.index import GgufSet
from glm5check.settings import first_gguf

Spoil = Callable[[Path], None]
"""Changes the GGUF set in a directory."""


def tensor_of(directory: Path, name: str) -> TensorInfo:
    return GgufSet.read(first_gguf(directory)).info(name)


def retyped(name: str, qtype: GGMLQuantizationType) -> Spoil:
    """The tensor's entry names another quant type; its bytes stay."""

    def spoil(directory: Path) -> None:
        tensor = tensor_of(directory, name)
        after_shape = 4 + 8 * len(tensor.shape)
        _write(tensor.file, _entry(tensor) + after_shape, struct.pack("<I", qtype))

    return spoil


def reshaped(name: str, shape: tuple[int, ...]) -> Spoil:
    """The tensor's entry names another shape, in numpy order, of as many dimensions."""

    def spoil(directory: Path) -> None:
        tensor = tensor_of(directory, name)
        _write(tensor.file, _entry(tensor) + 4, struct.pack(f"<{len(shape)}Q", *reversed(shape)))

    return spoil


def renamed(name: str, other: str) -> Spoil:
    """The tensor has another name of as many characters."""

    def spoil(directory: Path) -> None:
        tensor = tensor_of(directory, name)
        assert len(other) == len(name)
        _write(tensor.file, _entry(tensor) - len(name), other.encode())

    return spoil


def overwritten(name: str, data: bytes, at: int = 0) -> Spoil:
    """`data` over the tensor's bytes from byte `at`, as often as it fits if it is one byte."""

    def spoil(directory: Path) -> None:
        tensor = tensor_of(directory, name)
        _write(tensor.file, tensor.offset + at, data * tensor.nbytes if len(data) == 1 else data)

    return spoil


def part_missing(directory: Path) -> None:
    _parts(directory)[1].unlink()


def parts_swapped(directory: Path) -> None:
    _, second, third = _parts(directory)
    content = second.read_bytes()
    second.write_bytes(third.read_bytes())
    third.write_bytes(content)


def part_cut(directory: Path) -> None:
    last = _parts(directory)[-1]
    with last.open("r+b") as stream:
        stream.truncate(last.stat().st_size // 2)


def _parts(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.gguf"))


def _entry(tensor: TensorInfo) -> int:
    """Byte behind the name in the file's tensor table: number of dimensions, then the shape, the type, the offset."""
    name = tensor.name.encode()
    text = tensor.file.read_bytes()
    return text.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)


def _write(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as stream:
        stream.seek(at)
        stream.write(data)
