"""The exception tree: a wrong set-up and a wrong product are different things.

    Glm5CheckError
    ├── SetupError                what the user gave cannot be used; says what, where and what to do
    │   ├── OptionError           options contradict each other or have a wrong value
    │   ├── CheckpointError       a GGUF set or its HF config cannot be read
    │   ├── ServerError           the server did not start, is not the one asked for, or died
    │   │   └── UnsupportedError  the server does not offer what was asked for
    │   ├── TraceError            a trace, log or recording cannot be read
    │   ├── ReportError           a report or its journal cannot be read or written
    │   └── FingerprintError      two pieces of evidence come from different runs
    └── CheckFailed               the product is wrong (also an AssertionError)

Evidence that is missing is neither: a check then returns an `inconclusive` finding.
"""

from __future__ import annotations


class Glm5CheckError(Exception):
    """Base of everything that this package raises on purpose."""


class SetupError(Glm5CheckError):
    """The set-up is wrong: `what` happened `where`, and what to `do` about it."""

    def __init__(self, what: str, *, where: str = "", do: str = "") -> None:
        self.what, self.where, self.do = what, where, do
        super().__init__(what, where, do)

    def __str__(self) -> str:
        place = f" [{self.where}]" if self.where else ""
        advice = f"\n  what to do: {self.do}" if self.do else ""
        return f"{self.what}{place}{advice}"


class OptionError(SetupError):
    """Options contradict each other, or one has a value that is not among the right ones."""


class CheckpointError(SetupError):
    """A GGUF set, its HF config or its tokenizer is missing, incomplete or malformed."""


class ServerError(SetupError):
    """The server did not start, died, hangs, or serves another model than the one asked for."""


class UnsupportedError(ServerError):
    """The server does not offer what was asked for: that evidence cannot be had from it (inconclusive)."""


class TraceError(SetupError):
    """A profiler trace, a server log or an NCCL log cannot be read."""


class ReportError(SetupError):
    """A report.json or the journal of a run cannot be read or written."""


class FingerprintError(SetupError):
    """Two pieces of evidence were to be joined but come from different runs."""


class CheckFailed(Glm5CheckError, AssertionError):  # noqa: N818 - a verdict, not a mishap
    """The product failed a check; the message lists every finding that says so."""
