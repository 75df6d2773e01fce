"""A GGUF set: one file, or the numbered parts of a split one, as one table of tensors over memory maps.

model = GgufSet.open(Path("GLM-5-UD-Q4_K_XL-00001-of-00011.gguf"))
model.dequantise("blk.3.ffn_down_shexp.weight")
"""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from glm5check.checkpoint.header import Header, TensorInfo, read_header
from glm5check.errors import CheckpointError

if TYPE_CHECKING:
    from glm5check.checkpoint.dequant import OutputType

_PART: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MAX_PARTS: Final = 9999
_SAMPLE_BYTES: Final = 4096
_COPY_AGAIN: Final = "download that file again; compare sizes and checksums with the source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """Something wrong with a set that leaves the rest of it readable."""

    kind: str
    what: str
    where: str
    do: str

    def as_error(self) -> CheckpointError:
        return CheckpointError(self.what, where=self.where, do=self.do)


class GgufSet:
    """The tensors of one model. `defects` holds what is wrong with its files: `open` raises on any, `read` on none."""

    def __init__(self, headers: tuple[Header, ...], defects: tuple[Defect, ...] = ()) -> None:
        self.headers = headers
        self.metadata: Mapping[str, Any] = _joined_metadata(headers)
        tensors: dict[str, TensorInfo] = {}
        for header in headers:
            for tensor in header.tensors:
                tensors.setdefault(tensor.name, tensor)
        self.tensors: Mapping[str, TensorInfo] = tensors
        self.defects = (*defects, *_table_defects(headers))

    @classmethod
    def read(cls, path: Path) -> GgufSet:
        """Read the set that `path` (any part) belongs to, whatever its defects.

        CheckpointError only if a header that exists is no well-formed GGUF, or no part exists.
        """
        files = part_files(path)
        missing = [file for file in files if not file.is_file()]
        headers = tuple(read_header(file) for file in files if file not in missing or file == path)
        defects = [_missing(file, len(files)) for file in missing]
        return cls(headers, (*defects, *_split_defects(headers, files)))

    @classmethod
    def open(cls, path: Path) -> GgufSet:
        """Read the set that `path` (any part) belongs to. CheckpointError if any part is missing, swapped or cut."""
        model = cls.read(path)
        if model.defects:
            raise model.defects[0].as_error()
        return model

    @cached_property
    def _maps(self) -> dict[Path, mmap.mmap]:
        maps = {}
        for header in self.headers:
            with header.file.open("rb") as stream:
                maps[header.file] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return maps

    def info(self, name: str) -> TensorInfo:
        """The entry of tensor `name`; CheckpointError if the set has none."""
        try:
            return self.tensors[name]
        except KeyError:
            files = f"{self.headers[0].file} and {len(self.headers) - 1} more"
            raise CheckpointError(f"there is no tensor {name!r}", where=files, do="check the architecture") from None

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The bytes of tensor `name` as stored: uint8 [..., bytes of a row], a read-only map of the file."""
        tensor = self.info(name)
        file = self._maps[tensor.file]
        if not tensor.whole_blocks or tensor.offset + tensor.nbytes > len(file):
            raise CheckpointError(
                f"the bytes of {name} are not all in the file", where=f"{tensor.file}", do=_COPY_AGAIN
            )
        data = np.frombuffer(file, np.uint8, count=tensor.nbytes, offset=tensor.offset)
        return data.reshape(*tensor.shape[:-1], tensor.bytes_per_row)

    def forget(self, name: str) -> None:
        """Give back the memory that reading tensor `name` took: pages of a map count as the process's own.

        Arrays from `raw` stay valid; reading them again reads the file again.
        """
        tensor = self.info(name)
        start = tensor.offset // mmap.PAGESIZE * mmap.PAGESIZE
        self._maps[tensor.file].madvise(mmap.MADV_DONTNEED, start, tensor.offset + tensor.nbytes - start)

    def dequantise(self, name: str, *, out: OutputType = "float32") -> NDArray[Any]:
        """The weights of tensor `name` in numpy order: see `glm5check.checkpoint.dequant.dequantise`."""
        # Not at import: an index needs no numba, and vLLM's CPU workers cannot start once llvmlite is loaded.
        from glm5check.checkpoint.dequant import dequantise

        return dequantise(self.raw(name), self.info(name).qtype, out=out)

    def digest(self) -> str:
        """Identifies the set: SHA-256 over every header, file size and the first 4 KiB of every tensor.

        It tells one quantisation or conversion from another without reading the whole set. It does not prove that all
        bytes are equal.
        """
        total = hashlib.sha256()
        for header in self.headers:
            with header.file.open("rb") as stream:
                total.update(header.size.to_bytes(8, "little"))
                total.update(stream.read(header.end))
                for tensor in header.tensors:
                    stream.seek(min(tensor.offset, header.size))
                    total.update(stream.read(min(_SAMPLE_BYTES, tensor.nbytes)))
        return total.hexdigest()


def part_files(path: Path) -> tuple[Path, ...]:
    """The files of the set that `path` belongs to by its name `STEM-00001-of-00011.gguf`; else `path` alone."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return (path,)
    count = int(match["count"])
    if not 1 <= int(match["number"]) <= count <= _MAX_PARTS:
        raise CheckpointError(
            f"{path.name} names part {int(match['number'])} of {count}", where=str(path), do="restore the file's name"
        )
    return tuple(path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1))


def _joined_metadata(headers: tuple[Header, ...]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for header in headers:
        for key, value in header.metadata.items():
            joined.setdefault(key, value)
    return joined


def _missing(file: Path, count: int) -> Defect:
    return Defect(
        kind="split.missing",
        what=f"{file.name} does not exist, so {count - 1} of {count} parts at most are there",
        where=str(file.parent),
        do="put every part of the split set into one directory; download the missing one",
    )


def _split_defects(headers: tuple[Header, ...], files: tuple[Path, ...]) -> list[Defect]:
    """Parts that are not what their name says: keys `split.no` (from 0), `split.count`, `split.tensors.count`."""
    defects = []

    def add(kind: str, header: Header, what: str, do: str) -> None:
        defects.append(Defect(kind=kind, what=what, where=str(header.file), do=do))

    for header in headers:
        place = files.index(header.file)
        count, number = _integer(header, "split.count", 1), _integer(header, "split.no", 0)
        if count != len(files):
            names = f"its name says {len(files)}" if len(files) > 1 else "its name does not say which part it is"
            add("split.count", header, f"the file says that it is one of {count} parts, but {names}", _RENAME)
        elif number != place:
            add(
                "split.swapped", header, f"the file is named part {place + 1} but says it is part {number + 1}", _RENAME
            )
    declared = _integer(headers[0], "split.tensors.count", -1)
    found = sum(len(header.tensors) for header in headers)
    if declared >= 0 and len(headers) == len(files) and declared != found:
        add(
            "split.tensors",
            headers[0],
            f"the set should hold {declared} tensors but its parts list {found}",
            _COPY_AGAIN,
        )
    return defects


def _integer(header: Header, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if not isinstance(value, int):
        raise CheckpointError(f"key {key} is no integer", where=str(header.file), do=_COPY_AGAIN)
    return value


_RENAME: Final = "give every part the name it had at its source (STEM-00001-of-0000N.gguf), all in one directory"


def _table_defects(headers: tuple[Header, ...]) -> list[Defect]:
    """Entries of the tensor tables that cannot be right: the first of each kind in each file, with their number."""
    defects = []
    seen: set[str] = set()
    for header in headers:
        wrong: dict[str, list[str]] = {}
        for tensor in header.tensors:
            for kind, what in _tensor_defects(header, tensor, seen):
                wrong.setdefault(kind, []).append(what)
            seen.add(tensor.name)
        wrong.update(_overlaps(header))
        for kind, found in wrong.items():
            more = f" (and {len(found) - 1} more tensors so)" if len(found) > 1 else ""
            defects.append(Defect(kind=kind, what=found[0] + more, where=str(header.file), do=_COPY_AGAIN))
    return defects


def _tensor_defects(header: Header, tensor: TensorInfo, seen: set[str]) -> list[tuple[str, str]]:
    found = []
    if tensor.name in seen:
        found.append(("table.duplicate", f"tensor {tensor.name} occurs twice"))
    if not tensor.whole_blocks:
        what = f"rows of {tensor.name} have {tensor.columns} weights, no whole number of {tensor.qtype.name} blocks"
        found.append(("table.row_blocks", what))
    elif tensor.offset + tensor.nbytes > header.size:
        end = tensor.offset + tensor.nbytes
        found.append(("table.truncated", f"{tensor.name} ends at byte {end}, the file at byte {header.size}"))
    if tensor.offset % header.alignment:
        found.append(("table.alignment", f"{tensor.name} starts at byte {tensor.offset}, unaligned"))
    return found


def _overlaps(header: Header) -> dict[str, list[str]]:
    found = []
    placed = sorted((t for t in header.tensors if t.whole_blocks), key=lambda t: (t.offset, t.nbytes))
    for before, after in pairwise(placed):
        if after.offset < before.offset + before.nbytes:
            found.append(f"{before.name} and {after.name} share bytes from {after.offset}")
    return {"table.overlap": found} if found else {}
