"""What a report comes down to: one sentence for who decides, one row a concern for who looks further."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

from glm5check.records import Finding, Measurement, Outcome
from glm5check.reports.model import Case, CaseOutcome, Report
from glm5check.reports.names import MEASURE, SPEED_UNIT

MEANING: Final = {
    "checkpoint": "the model file is damaged, incomplete or not what its configuration says",
    "dequant": "weights are decoded wrongly from the file",
    "sharding": "ranks hold the wrong parts of the weights",
    "decode": "the model's answers are wrong",
    "context": "answers go wrong in long or concurrent requests",
    "speculative": "speculative decoding changes the answers or gains nothing",
    "graphs": "decode steps do not run as CUDA graphs as they should",
    "collectives": "communication between the ranks is not what it should be",
    "throughput": "it is slower than it should be",
}
"""What a failed concern means, as the part of a sentence."""
SPEED: Final = ("throughput",)
SELFTEST: Final = "selftest"
SHORT: Final = 60


class Verdict(StrEnum):
    """GOOD: everything asked was proved. BAD: something is wrong. OPEN: evidence is missing."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One concern: its verdict, its most telling number, and how many tests and findings that rests on."""

    concern: str
    verdict: Verdict
    headline: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`notes` are facts that a reader of the sentence must know too (interrupted, seeded faults, known failures)."""

    verdict: Verdict
    sentence: str
    notes: tuple[str, ...]
    rows: tuple[Row, ...]


def summarise(report: Report) -> Summary:
    """The verdict on the whole run. Nothing missing is ever good."""
    bad = report.of(CaseOutcome.FAILED)
    broken = report.of(CaseOutcome.ERROR)
    undecided = report.of(CaseOutcome.INCONCLUSIVE, CaseOutcome.SKIPPED, CaseOutcome.UNFINISHED)
    passed = report.of(CaseOutcome.PASSED)
    if bad or report.problems:
        verdict, sentence = Verdict.BAD, _bad(report, bad)
    elif broken:
        verdict, sentence = Verdict.BAD, _broken(report, broken)
    elif report.interruption:
        verdict = Verdict.OPEN
        sentence = f"Nothing failed so far, but the run was cut short: {_count(report, len(passed))} passed."
    elif not passed:
        verdict, sentence = Verdict.OPEN, "Nothing was proved: no test passed and none failed."
    elif undecided:
        verdict = Verdict.OPEN
        where = ", ".join(sorted({case.concern for case in undecided}))
        sentence = (
            f"Nothing failed and {len(passed)} passed, but {_count(report, len(undecided))} lacked evidence ({where}): "
            "not a full pass."
        )
    else:
        verdict, sentence = Verdict.GOOD, _good(report, passed)
    concerns = dict.fromkeys(case.concern for case in report.cases)
    return Summary(
        verdict=verdict, sentence=sentence, notes=_notes(report), rows=tuple(_row(report, name) for name in concerns)
    )


def by_reason(cases: Iterable[Case]) -> dict[str, list[str]]:
    """Ids of tests by why they ended as they did: a machine without a GPU gives many the same reason."""
    reasons: dict[str, list[str]] = {}
    for case in cases:
        reasons.setdefault(case.message or "it was running when the run ended", []).append(case.nodeid)
    return reasons


def alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings grouped by what they expected and why they failed: one fault on every layer and rank is one story."""
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.check, finding.want, finding.cause, finding.repeat), []).append(finding)
    return list(groups.values())


def subject(report: Report) -> str:
    """What was judged, as the beginning of a sentence: nobody may take the tiny model for the real one."""
    if {case.concern for case in report.cases} == {SELFTEST}:
        return "The suite itself"
    if report.setup.get("trace") and not report.fingerprint:
        return "The recorded deployment"
    return "The embedded tiny GLM-5 on this machine" if report.setup.get("embedded") == "yes" else "This deployment"


def headline(findings: list[Finding], measurements: list[Measurement]) -> str:
    """The most telling number: what failed, else a speed, else what came nearest to its bound."""
    failed = [finding for finding in findings if finding.outcome is Outcome.FAILED]
    numbers = [finding for finding in failed or findings if finding.value is not None]
    if failed:
        return _number(numbers[0]) if numbers else _words(failed[0])
    speeds = [finding for finding in numbers if finding.unit == SPEED_UNIT]
    if speeds:
        return _number(speeds[0])
    for measurement in measurements:
        if measurement.unit == SPEED_UNIT:
            return f"{measurement.name} {median(measurement.samples):.4g} {SPEED_UNIT}"
    if numbers:
        return _number(min(numbers, key=_distance))
    return _words(findings[0]) if findings else ""


def shorten(text: str, length: int = SHORT) -> str:
    """`text` on one line, cut at `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 3] + "..."


def _good(report: Report, passed: tuple[Case, ...]) -> str:
    concerns = {case.concern for case in passed}
    is_right, is_fast = bool(concerns - set(SPEED)), bool(concerns & set(SPEED))
    known = len(report.of(CaseOutcome.KNOWN))
    exception = f", apart from {known} known failure{'s' * (known > 1)}" if known else ""
    quality = "right and fast enough" if is_right and is_fast else "right" if is_right else "fast enough"
    missing = "" if is_right and is_fast else " Speed was not judged." if is_right else " Correctness was not judged."
    missing = missing if concerns != {SELFTEST} else ""
    return f"{subject(report)} is {quality}{exception}: {_count(report, len(passed))} passed.{missing}"


def _bad(report: Report, bad: tuple[Case, ...]) -> str:
    if not bad:
        return f"The run counts as failed: {report.problems[0]}"
    concerns = dict.fromkeys(case.concern for case in bad)
    meanings = dict.fromkeys(_meaning(case) for case in bad)
    slow = set(concerns) <= set(SPEED)
    advice = "is right but too slow" if slow and _others_passed(report) else "should not be used as it is"
    broken = len(report.of(CaseOutcome.ERROR))
    unjudged = f", {broken} could not be judged" if broken else ""
    return f"{subject(report)} {advice}: {'; '.join(meanings)}. {_count(report, len(bad))} failed{unjudged}."


def _meaning(case: Case) -> str:
    """What the failure says about the product; with --glm5-strict a test fails without a failed finding too."""
    if case.findings and not any(finding.outcome is Outcome.FAILED for finding in case.findings):
        return f"evidence about {case.concern} is missing"
    return MEANING.get(case.concern, f"the {case.concern} tests fail")


def _others_passed(report: Report) -> bool:
    others = [case for case in report.cases if case.concern not in SPEED]
    return bool(others) and all(case.outcome is CaseOutcome.PASSED for case in others)


def _broken(report: Report, broken: tuple[Case, ...]) -> str:
    first = shorten(broken[0].message.split("\n", 1)[0], 200)
    return f"{_count(report, len(broken)).capitalize()} could not be judged because of an error: {first}"


def _notes(report: Report) -> tuple[str, ...]:
    notes = []
    if report.setup.get("faults"):
        notes.append(f"Faults were seeded on purpose: {report.setup['faults']}. Failures are expected.")
    if report.interruption:
        running = ", ".join(case.nodeid for case in report.of(CaseOutcome.UNFINISHED))
        inside = f" It was in {running}." if running else ""
        notes.append(f"Interrupted ({report.interruption}): tests that had not run by then are not judged.{inside}")
    known = report.of(CaseOutcome.KNOWN)
    if known:
        notes.append(f"Listed as known failures, not counted: {', '.join(case.nodeid for case in known)}.")
    notes += report.problems
    return tuple(notes)


def _row(report: Report, concern: str) -> Row:
    cases = [case for case in report.cases if case.concern == concern]
    findings = [finding for case in cases for finding in case.findings]
    counts = Counter(case.outcome for case in cases)
    if counts[CaseOutcome.FAILED] or counts[CaseOutcome.ERROR]:
        verdict = Verdict.BAD
    elif counts[CaseOutcome.PASSED] and not counts.keys() - {CaseOutcome.PASSED, CaseOutcome.KNOWN}:
        verdict = Verdict.GOOD
    else:
        verdict = Verdict.OPEN
    tests = ", ".join(f"{counts[outcome]} {outcome}" for outcome in CaseOutcome if counts[outcome])
    number = headline(findings, [measurement for case in cases for measurement in case.measurements])
    return Row(
        concern=concern,
        verdict=verdict,
        headline=number or next((shorten(case.message) for case in cases if case.message), ""),
        evidence=f"{tests}; {len(findings)} finding{'s' * (len(findings) != 1)}" if findings else tests,
    )


def _count(report: Report, count: int) -> str:
    total = max(report.collected, len(report.cases))
    if count == total:
        return f"all {total} tests" if total > 1 else "the one test"
    return f"{count} of {total} tests"


def _number(finding: Finding) -> str:
    against = f" against {finding.bound:.4g}" if finding.bound is not None else ""
    name = finding.where.get(MEASURE) or finding.check.partition(".")[2]
    return f"{name} {finding.value:.4g}{against} {finding.unit}".rstrip()


def _words(finding: Finding) -> str:
    return f"{finding.check.partition('.')[2]}: {shorten(finding.got)}"


def _distance(finding: Finding) -> float:
    """How many times the value is away from its bound, as a logarithm; infinite where that says nothing."""
    value, bound = finding.value, finding.bound
    if value is None or bound is None or value <= 0 or bound <= 0:
        return math.inf
    return abs(math.log(value / bound))
