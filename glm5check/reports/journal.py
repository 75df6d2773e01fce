"""The journal: what happened in a run, one JSON object a line, written as it happens so that no crash loses it.

A report is always made from a journal (`build`), at the end of the run as well as after a crash.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from glm5check.errors import ReportError
from glm5check.records import Finding, Measurement
from glm5check.reports.model import SCHEMA, Case, CaseOutcome, Report

JOURNAL: Final = "findings.jsonl"
MAX_BYTES: Final = 1 << 30
"""A journal of a nightly run has a few MB; beyond this it is none of ours."""


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """First line: `started` is ISO 8601 in UTC, `setup` and `detection` as in Report."""

    schema: int = SCHEMA
    program: str
    started: str
    command: str
    setup: Mapping[str, str]
    detection: str = ""


class Collected(msgspec.Struct, frozen=True, kw_only=True, tag="collected"):
    """How many tests are to run."""

    count: int


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """A test begins; if no Ended follows, the run ended in it."""

    nodeid: str


class Found(msgspec.Struct, frozen=True, kw_only=True, tag="finding"):
    nodeid: str
    finding: Finding


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag="measurement"):
    nodeid: str
    measurement: Measurement


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A test is over; `message` is why, where it did not pass."""

    nodeid: str
    outcome: CaseOutcome
    seconds: float
    message: str = ""
    repeat: str = ""


class RanOn(msgspec.Struct, frozen=True, kw_only=True, tag="fingerprint"):
    """The server was fingerprinted."""

    facts: Mapping[str, str]


class Problem(msgspec.Struct, frozen=True, kw_only=True, tag="problem"):
    text: str


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """Last line, of a run that ended by itself or was stopped and could still say so (`interruption`)."""

    seconds: float
    exit_status: int
    interruption: str = ""


Event: TypeAlias = Begin | Collected | Started | Found | Measured | Ended | RanOn | Problem | End


class Journal:
    """Keeps events and, with a `path`, writes each at once. Raises ReportError if it cannot be written."""

    def __init__(self, path: Path | None = None) -> None:
        self.events: list[Event] = []
        self._path = path
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"")
            except OSError as error:
                raise ReportError(
                    f"the report cannot be written: {error.strerror}",
                    where=str(path),
                    do="give --glm5-report a directory that you may write to",
                ) from None

    def append(self, event: Event) -> None:
        """Opened and closed each time, so that what was appended survives the death of this process."""
        self.events.append(event)
        if self._path is not None:
            with self._path.open("ab") as stream:
                stream.write(msgspec.json.encode(event) + b"\n")


def read(path: Path) -> list[Event]:
    """Events of a journal file. A last line that was cut off in writing is left out.

    Raises ReportError if the file cannot be read, is not a journal, or is of another schema.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ReportError(f"the journal is larger than {MAX_BYTES >> 30} GiB", where=str(path))
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ReportError(
            f"there is no journal to read: {error.strerror}",
            where=str(path),
            do="give the directory that --glm5-report wrote to",
        ) from None
    decoder = msgspec.json.Decoder(Event)
    events: list[Event] = []
    # What follows the last newline is a torn line, or nothing.
    for number, line in enumerate(lines[:-1], start=1):
        try:
            events.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise ReportError(f"line {number} is not of a journal: {error}", where=str(path)) from None
    if not events or not isinstance(events[0], Begin):
        raise ReportError("the journal has no beginning", where=str(path), do="run the tests again")
    if events[0].schema != SCHEMA:
        raise ReportError(
            f"the journal has schema {events[0].schema}, this program reads {SCHEMA}",
            where=str(path),
            do="read it with the version of glm5check that wrote it",
        )
    return events


def build(events: Iterable[Event]) -> Report:
    """The report of what happened so far."""
    report = Report()
    ended: dict[str, Ended | None] = {}
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    measured: defaultdict[str, list[Measurement]] = defaultdict(list)
    for event in events:
        match event:
            case Started(nodeid=nodeid):
                ended[nodeid] = None
            case Found(nodeid=nodeid, finding=finding):
                ended.setdefault(nodeid)
                found[nodeid].append(finding)
            case Measured(nodeid=nodeid, measurement=measurement):
                ended.setdefault(nodeid)
                measured[nodeid].append(measurement)
            case Ended(nodeid=nodeid):
                ended[nodeid] = event
            case _:
                report = _with(report, event)
    if not report.ended:
        report = replace(report, interruption="the process was killed or crashed")
    cases = (_case(nodeid, end, found[nodeid], measured[nodeid]) for nodeid, end in ended.items())
    return replace(report, cases=tuple(cases))


def _case(nodeid: str, end: Ended | None, found: list[Finding], measured: list[Measurement]) -> Case:
    return Case(
        nodeid=nodeid,
        outcome=end.outcome if end else CaseOutcome.UNFINISHED,
        seconds=end.seconds if end else 0.0,
        message=end.message if end else "",
        repeat=end.repeat if end else "",
        findings=tuple(found),
        measurements=tuple(measured),
    )


def _with(report: Report, event: Event) -> Report:
    """The report with what concerns the run as a whole."""
    match event:
        case Begin():
            return replace(
                report,
                program=event.program,
                started=event.started,
                command=event.command,
                setup=dict(event.setup),
                detection=event.detection,
            )
        case Collected():
            return replace(report, collected=event.count)
        case RanOn():
            return replace(report, fingerprint=dict(event.facts))
        case Problem():
            return replace(report, problems=(*report.problems, event.text))
        case End():
            return replace(
                report,
                ended=True,
                seconds=event.seconds,
                exit_status=event.exit_status,
                interruption=event.interruption,
            )
        case _:
            return report
