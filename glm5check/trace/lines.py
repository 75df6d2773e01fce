"""Lines of a log, plain or gzipped, without colours, progress-bar returns or memory surprises."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from glm5check.errors import TraceError

_MAX_LINE: Final = 1 << 20
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read_lines(path: Path, *, offset: int = 0) -> Iterator[str]:
    """Yield the lines of a log from byte `offset` on (of the file as stored; only a plain file can start late).

    Carriage returns end lines, so every state of a progress bar is a line. Lines are cut at 1 MiB. Raises TraceError if
    the file is missing, damaged, or compressed although an offset is given.
    """
    packed = path.suffix == ".gz"
    if packed and offset:
        raise TraceError("a compressed log has no offsets", where=str(path), do="give the plain log file")
    try:
        with gzip.open(path) if packed else path.open("rb") as stream:
            if offset:
                stream.seek(offset)
            while line := stream.readline(_MAX_LINE):
                text = _COLOURS.sub("", line.decode("utf-8", "replace"))
                yield from text.rstrip("\r\n").split("\r")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"the compressed log is cut or damaged ({error})", where=str(path)) from error
    except OSError as error:
        raise TraceError(f"the log cannot be read ({error.strerror})", where=str(path), do="check the path") from error
