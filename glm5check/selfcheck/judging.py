"""What a run of pytest says of a fault, or of a server without one: from its report, never from what it printed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from glm5check.records import Outcome
from glm5check.reports.matrix import Detection, FaultCell, HealthyRun, Verdict
from glm5check.reports.model import Case, CaseOutcome, Report
from glm5check.selfcheck.runs import Ended
from glm5check.selfcheck.seeded import Place, SeededFault

MESSAGE_CHARACTERS: Final = 600
_CARRIED: Final = "carried by a self-test"


def judge_fault(fault: SeededFault, ended: Ended, commit: str, *, copies: Path | None = None) -> FaultCell:
    """The cell of one fault. Its words name files below `copies` from there, so that a kept matrix names no machine."""
    report = ended.report or Report()
    detection, why, message = _not_run(ended.problem) if ended.problem else _detection(fault, report)
    message = message.replace(f"{copies}/", "") if copies else message
    return msgspec.structs.replace(
        unrun(fault, detection, why, commit),
        failed=tuple(case.nodeid for case in report.of(CaseOutcome.FAILED)),
        message=message[:MESSAGE_CHARACTERS],
        seconds=ended.seconds,
    )


def unrun(fault: SeededFault, outcome: Detection, why: str, commit: str = "") -> FaultCell:
    """The cell of a fault for which nothing ran."""
    return FaultCell(
        name=fault.name,
        fault_class=fault.fault_class,
        stands_for=fault.stands_for,
        seeded_in=fault.seeded_in,
        needs_gpu=fault.needs_gpu,
        expected=fault.caught_by,
        outcome=outcome,
        why=why,
        says=fault.says,
        commit=commit,
    )


def judge_healthy(variant: str, ended: Ended, commit: str) -> HealthyRun:
    """The run is a false alarm if anything failed or broke, and says nothing if nothing passed."""
    report = ended.report or Report()
    red = report.of(CaseOutcome.FAILED, CaseOutcome.ERROR)
    passed = len(report.of(CaseOutcome.PASSED))
    says_nothing = bool(ended.problem) or not passed
    return HealthyRun(
        variant=variant,
        verdict=Verdict.FAILED if red else Verdict.INCONCLUSIVE if says_nothing else Verdict.PASSED,
        failed=tuple(case.nodeid for case in red),
        passed=passed,
        inconclusive=len(report.of(CaseOutcome.INCONCLUSIVE)),
        seconds=ended.seconds,
        commit=commit,
    )


def _detection(fault: SeededFault, report: Report) -> tuple[Detection, str, str]:
    """Outcome, why, and the words of the test that must catch the fault."""
    expected = [case for case in report.cases if _is(case, fault.caught_by)]
    if not expected:
        return _not_run(f"{fault.caught_by} did not run")
    if fault.by_selftest:
        return _carried(expected)
    broken = [case for case in expected if case.outcome is CaseOutcome.ERROR]
    failed = [case for case in expected if case.outcome is CaseOutcome.FAILED]
    others = [case for case in report.of(CaseOutcome.FAILED) if case not in expected]
    saying = next((case for case in failed if fault.says in said(case)), None)
    if saying is not None:
        return Detection.CAUGHT, "", said(saying)
    if failed:
        return Detection.CAUGHT_BY_ANOTHER, "the named test failed in other words", said(failed[0])
    if others:
        names = ", ".join(case.nodeid.rpartition("::")[2] for case in others)
        return Detection.CAUGHT_BY_ANOTHER, f"the named test {expected[0].outcome}; {names} failed", said(others[0])
    if broken:
        return Detection.NOT_RUN, "the set-up broke", broken[0].message
    if fault.seeded_in is Place.LOAD and all(case.outcome is CaseOutcome.INCONCLUSIVE for case in expected):
        return Detection.NOT_RUN, "the machine was too busy to measure", expected[0].message
    return Detection.MISSED, f"the named test {expected[0].outcome}", expected[0].message


def _carried(cases: list[Case]) -> tuple[Detection, str, str]:
    bad = next((case for case in cases if case.outcome is not CaseOutcome.PASSED), None)
    if bad is None:
        return Detection.CAUGHT, _CARRIED, ""
    outcome = Detection.MISSED if bad.outcome is CaseOutcome.FAILED else Detection.NOT_RUN
    return outcome, f"{_CARRIED}, which ended as {bad.outcome}", bad.message


def _not_run(why: str) -> tuple[Detection, str, str]:
    return Detection.NOT_RUN, why, ""


def _is(case: Case, nodeid: str) -> bool:
    """`nodeid` names the case, or all cases of a parametrised test."""
    return case.nodeid == nodeid or case.nodeid.startswith(f"{nodeid}[")


def said(case: Case) -> str:
    """What a failed test said: its failed findings, else its message."""
    findings = [str(finding) for finding in case.findings if finding.outcome is Outcome.FAILED]
    return "\n".join(findings) or case.message
