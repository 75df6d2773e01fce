"""A fault, and runs of pytest that are only told of."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from glm5check.records import Finding, Outcome
from glm5check.reports.model import Case, CaseOutcome, Report
from glm5check.selfcheck.runs import Ended
from glm5check.selfcheck.seeded import Place, SeededFault
from glm5check.vllm_plugin.faults.fault import FaultClass

NAMED = "tests/decode/test_tokenizer.py::test_conversations_begin_once"
OTHER = "tests/decode/test_answers.py::test_closed_questions_are_answered"


@contextmanager
def nothing(workspace):
    yield ()


@pytest.fixture
def fault():
    """`fault(name="other")`: a fault that NAMED must catch in the words `the words`."""

    def make(**changes):
        given = {
            "name": "made_up",
            "fault_class": FaultClass.FILES,
            "stands_for": "a report",
            "seeded": "somehow",
            "seeded_in": Place.CONFIG,
            "caught_by": NAMED,
            "says": "the words",
            "seed": nothing,
            "beside": (OTHER,),
        }
        return SeededFault(**(given | changes))

    return make


@pytest.fixture
def ended():
    """`ended({NAMED: "failed"}, says="...")`: a run that ended with these outcomes; failed tests say so much."""

    def make(outcomes, *, says="the words", **changes):
        cases = tuple(
            Case(nodeid=nodeid, outcome=CaseOutcome(outcome), message="a message", findings=_findings(outcome, says))
            for nodeid, outcome in outcomes.items()
        )
        return Ended(**({"status": 1, "seconds": 3.0, "report": Report(cases=cases, ended=True)} | changes))

    return make


def _findings(outcome, says):
    if outcome != "failed":
        return ()
    return (Finding(check="decode.it", outcome=Outcome.FAILED, got="wrong", want="right", cause=says),)
