"""The server's log file: its last lines, its first error, and what it is doing now."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX: Final = re.compile(r"^(?:\([\w ]+(?:pid=\d+)?\) )*(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] )?")
_ERROR: Final = re.compile(r"(?<![\w.])(?P<error>(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Refused|Failed|Interrupt): .+)")
_VAGUE: Final = (
    "fd limit errors like",  # a warning that quotes an error
    "See root cause above",
    "Engine core initialization failed",
    "No module named 'triton'",
)
_FIXES: Final = re.compile(r"glm5check: fixes applied: .*; needed but left out: (?P<names>[\w, ]+);")
_PHASES: Final = (
    (re.compile(r"Application startup complete|Starting vLLM (?:API )?server"), "opening the API"),
    (re.compile(r"Graph capturing finished|Capturing CUDA graph"), "capturing CUDA graphs"),
    (re.compile(r"KV cache size:|Available KV cache memory"), "laying out the KV cache"),
    (re.compile(r"Loading weights took|Model loading took"), "warming up"),
    (re.compile(r"Starting to load model|Loading .* weights"), "loading weights"),
    (re.compile(r"Initializing a V1 LLM engine|distributed_init_method"), "starting the engine and its ranks"),
    (re.compile(r"non-default args"), "reading the model's configuration"),
)


class ServerLog:
    """Reads the log that the server writes; never holds it open."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        """All lines so far, without terminal colours. Empty if nothing was written yet."""
        try:
            return [_ANSI.sub("", line) for line in self.path.read_text(errors="replace").splitlines()]
        except FileNotFoundError:
            return []

    def tail(self, count: int = 12) -> str:
        """The last `count` lines that say something, without vLLM's prefix."""
        spoken = [line for line in self.lines() if line.strip()]
        return "\n".join(_PREFIX.sub("", line) for line in spoken[-count:])

    def first_error(self) -> str:
        """The first exception line that names a cause; empty if there is none.

        The first and not the last: later ones only say that the engine is gone.
        """
        for line in self.lines():
            match = _ERROR.search(line)
            if match and not any(phrase in line for phrase in _VAGUE):
                return match["error"].strip()
        return ""

    def fixes_left_out(self) -> tuple[str, ...]:
        """Names of upstream faults that the server's own plugin said it needs fixes for and left in."""
        for line in self.lines():
            match = _FIXES.search(line)
            if match:
                return tuple(name for name in match["names"].split(", ") if name != "none")
        return ()

    def phase(self) -> str:
        """What the server is doing, by the newest line that says so."""
        for line in reversed(self.lines()):
            for pattern, phase in _PHASES:
                if pattern.search(line):
                    return phase
        return "importing vLLM"
