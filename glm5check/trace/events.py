"""Reading the events of a profiler's JSON in pieces, so that memory follows what is kept and not the file's size.

A trace is one JSON object with a long `traceEvents` array. The text is cut at places that look like the border of two
events, and each piece is decoded as an array of its own. Whether a cut was right needs no guess: text that is a valid
array once `]` is appended was cut between two of its elements, because JSON has only one reading of a prefix.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from glm5check.errors import TraceError

# Small enough for a processor's cache: reading is 1.5 times as fast as with pieces of 1 MiB.
_CHUNK: Final = 1 << 16
_MAX_HEADER: Final = 8 << 20
_MAX_EVENT: Final = 4 << 20
_MAX_TEXT: Final = 32 << 30
_CUTS_TRIED: Final = 8
_GZIP_MAGIC: Final = b"\x1f\x8b"
_EVENTS_KEY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
# Kernel names may hold raw control characters, which JSON forbids; outside of strings they are white space anyway.
_NO_CONTROLS: Final = bytes(max(code, 0x20) if code != 0x7F else 0x20 for code in range(256))

_ADVICE: Final = "profile again, and copy the file only after /stop_profile has returned"


class Event(msgspec.Struct, gc=False):
    """One trace event; `args` stays undecoded, because most events' are never looked at."""

    name: str = ""
    cat: str = ""
    ph: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class Distributed(msgspec.Struct, gc=False):
    """The trace's `distributedInfo`."""

    rank: int | None = None
    world_size: int | None = None
    nccl_version: str = ""


class Device(msgspec.Struct, gc=False):
    """One of the trace's `deviceProperties`."""

    id: int = 0
    name: str = ""


class Header(msgspec.Struct):
    """What stands beside the events, before or after them."""

    distributed: Distributed | None = msgspec.field(name="distributedInfo", default=None)
    devices: list[Device] = msgspec.field(name="deviceProperties", default_factory=list)
    vllm_version: str = ""


class _Ending(Header):
    events: list[Event] = msgspec.field(name="traceEvents", default_factory=list)


_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_header = msgspec.json.Decoder(Header).decode
_decode_ending = msgspec.json.Decoder(_Ending).decode


class EventReader:
    """The events of one file, piece by piece; `header` is complete once they have all been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = Header()
        self.text_bytes = 0

    def __iter__(self) -> Iterator[list[Event]]:
        """Yield lists of events. Raises TraceError for anything that is not a whole, well-formed trace."""
        try:
            with self.path.open("rb") as raw:
                packed = raw.read(2) == _GZIP_MAGIC
                raw.seek(0)
                with gzip.GzipFile(fileobj=raw) if packed else raw as stream:
                    yield from self._pieces(stream)  # type: ignore[arg-type]
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self._error(f"the compressed file is cut or damaged ({error})") from error
        except OSError as error:
            raise self._error(f"the file cannot be read ({error.strerror})", do="check the path") from error

    def _pieces(self, stream: BinaryIO) -> Iterator[list[Event]]:
        rest = self._read_header(stream)
        while True:
            events, rest = self._cut(rest)
            if events:
                yield events
            if len(rest) > _MAX_EVENT:
                raise self._error(f"no border between events within {len(rest):,} bytes")
            block = self._read(stream)
            if not block:
                break
            rest += block
        yield self._read_ending(rest)

    def _read(self, stream: BinaryIO) -> bytes:
        block = stream.read(_CHUNK)
        self.text_bytes += len(block)
        if self.text_bytes > _MAX_TEXT:
            raise self._error(f"more than {_MAX_TEXT >> 30} GiB of text", do="profile 10 to 30 decode steps, not more")
        return block.translate(_NO_CONTROLS)

    def _read_header(self, stream: BinaryIO) -> bytes:
        text = b""
        while block := self._read(stream):
            text += block
            for found in _EVENTS_KEY.finditer(text):
                try:
                    self.header = _decode_header(text[: found.end()] + b"]}")
                except msgspec.ValidationError as error:
                    raise self._error(f"the header is not a profiler's ({error})") from error
                except (msgspec.DecodeError, RecursionError):
                    continue
                return text[found.end() :]
            if len(text) > _MAX_HEADER:
                break
        what = "the file is empty" if not text else "not a profiler trace: there is no array `traceEvents` in it"
        raise self._error(what, do="give the *.pt.trace.json[.gz] files that the torch profiler wrote, one a rank")

    def _cut(self, text: bytes) -> tuple[list[Event], bytes]:
        """Events up to the last border that can be found, and the text after it."""
        brace = len(text)
        for _ in range(_CUTS_TRIED):
            comma = -1
            while comma < 0:
                brace = text.rfind(b"{", 0, brace)
                if brace < 0:
                    return [], text
                before = text[max(0, brace - 64) : brace].rstrip()
                if before.endswith(b",") and before[:-1].rstrip().endswith(b"}"):
                    comma = max(0, brace - 64) + len(before) - 1
            try:
                return _decode_events(b"[" + text[:comma] + b"]"), text[brace:]
            except msgspec.ValidationError as error:
                raise self._error(f"an event has a field of a wrong type ({error})") from error
            except (msgspec.DecodeError, RecursionError):
                continue
        return [], text

    def _read_ending(self, text: bytes) -> list[Event]:
        try:
            ending = _decode_ending(b'{"traceEvents":[' + text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._error(f"the JSON is cut or malformed after {self.text_bytes:,} bytes ({error})") from error
        self.header = Header(
            distributed=ending.distributed or self.header.distributed,
            devices=ending.devices or self.header.devices,
            vllm_version=ending.vllm_version or self.header.vllm_version,
        )
        return ending.events

    def _error(self, what: str, *, do: str = _ADVICE) -> TraceError:
        return TraceError(what, where=str(self.path), do=do)
