"""JSON files with a schema: read with the type that they were written with, or refused in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from glm5check.errors import ReportError

_T = TypeVar("_T")


class _Version(msgspec.Struct):
    schema: int


def render(value: object) -> bytes:
    """Indented UTF-8, so that two files can be compared with diff."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def read(path: Path, kind: type[_T], *, schema: int, what: str, largest: tuple[int, str], hint: str, other: str) -> _T:
    """A `kind` of this schema. `what` is its word in messages, `largest` its most bytes and how to say them.

    `hint` is what to do where there is none, `other` where its schema is another. Raises ReportError if the file cannot
    be read, is none, or has a schema that this program does not know.
    """
    most, size = largest
    try:
        if path.stat().st_size > most:
            raise ReportError(f"the {what} is larger than {size}", where=str(path))
        text = path.read_bytes()
    except OSError as error:
        raise ReportError(f"there is no {what} to read: {error.strerror}", where=str(path), do=hint) from None
    try:
        found = msgspec.json.decode(text, type=_Version).schema
        if found != schema:
            raise ReportError(f"the {what} has schema {found}, this program reads {schema}", where=str(path), do=other)
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise ReportError(f"the file is no {what}: {error}", where=str(path)) from None
