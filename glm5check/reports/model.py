"""The report as data: what ran, what was found and measured, and on what. Everything else here renders it.

Text in it has been through `redaction`: it holds no secret, no unpaired surrogate and no control character.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from glm5check.records import Finding, Measurement

SCHEMA: Final = 1
"""Version of report.json and of the journal: raised when a field changes its meaning or goes, not when one is added."""


class CaseOutcome(StrEnum):
    """How one test ended."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """The set-up was wrong or something broke around the test: nothing was judged."""
    INCONCLUSIVE = "inconclusive"
    KNOWN = "known failure"
    SKIPPED = "skipped"
    UNFINISHED = "unfinished"
    """It had begun when the run ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test: its id, how it ended and why, how to run it again, and what it found and measured."""

    nodeid: str
    outcome: CaseOutcome
    seconds: float = 0.0
    message: str = ""
    repeat: str = ""
    findings: tuple[Finding, ...] = ()
    measurements: tuple[Measurement, ...] = ()

    @property
    def concern(self) -> str:
        """The concern of its findings, else the directory below `tests/`, else `other`."""
        if self.findings:
            return self.findings[0].concern
        parts = self.nodeid.split("::", 1)[0].split("/")
        after = parts[parts.index("tests") + 1 : -1] if "tests" in parts else []
        return after[0] if after else "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One run.

    `setup` says what was asked for (model, ranks, attach, fixes, faults, ...), `fingerprint` what it ran on, empty
    where no server was started. `ended` is False for a run that was killed; `interruption` says what cut a run short.
    `detection` says how well the suite that ran catches seeded faults, empty where that is not known.
    `problems` concern the whole run and count as failures (an outdated list of known failures).
    """

    schema: int = SCHEMA
    program: str = ""
    started: str = ""
    seconds: float = 0.0
    command: str = ""
    collected: int = 0
    ended: bool = False
    interruption: str = ""
    exit_status: int | None = None
    detection: str = ""
    setup: Mapping[str, str] = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[Case, ...] = ()
    problems: tuple[str, ...] = ()

    def of(self, *outcomes: CaseOutcome) -> tuple[Case, ...]:
        """The tests that ended so, in the order they ran."""
        return tuple(case for case in self.cases if case.outcome in outcomes)

    @property
    def findings(self) -> Iterator[Finding]:
        return (finding for case in self.cases for finding in case.findings)

    @property
    def measurements(self) -> Iterator[Measurement]:
        return (measurement for case in self.cases for measurement in case.measurements)


def where_text(where: Mapping[str, str], without: Sequence[str] = ()) -> str:
    """`prompt=fox tp=2`: a `where` on one line, without some of its keys."""
    return " ".join(f"{key}={value}" for key, value in where.items() if key not in without)
