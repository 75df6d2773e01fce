"""What counts as caught: the named test, failed, in the right words; and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from glm5check.reports.matrix import Detection, Verdict
from glm5check.selfcheck.judging import judge_fault, judge_healthy
from glm5check.selfcheck.seeded import Place
from tests.selftest.selfcheck.conftest import NAMED, OTHER

CARRIER = "tests/selftest/collectives/test_processes.py::test_right"


def test_the_named_test_in_the_right_words(fault, ended):
    cell = judge_fault(fault(), ended({NAMED: "failed", OTHER: "passed"}), "abc")
    assert (cell.outcome, cell.failed, cell.why, cell.commit) == (Detection.CAUGHT, (NAMED,), "", "abc")
    assert "the words" in cell.message
    assert cell.seconds == 3.0


def test_files_are_named_from_the_copy(fault, ended):
    run = ended({NAMED: "failed"}, says="the words [file=/machine/matrix/work/made_up/part.gguf]")
    cell = judge_fault(fault(), run, "", copies=Path("/machine/matrix/work/made_up"))
    assert "[file=part.gguf]" in cell.message


def test_one_case_of_a_parametrised_test_is_enough(fault, ended):
    run = ended({f"{NAMED}[one]": "passed", f"{NAMED}[two]": "failed"})
    assert judge_fault(fault(), run, "").outcome is Detection.CAUGHT
    assert judge_fault(fault(caught_by=f"{NAMED}[two]"), run, "").outcome is Detection.CAUGHT
    assert judge_fault(fault(caught_by=f"{NAMED}[one]"), run, "").outcome is Detection.CAUGHT_BY_ANOTHER


def test_other_words_are_another_reason(fault, ended):
    cell = judge_fault(fault(), ended({NAMED: "failed"}, says="something else"), "")
    assert cell.outcome is Detection.CAUGHT_BY_ANOTHER
    assert "in other words" in cell.why


def test_another_test(fault, ended):
    cell = judge_fault(fault(), ended({NAMED: "passed", OTHER: "failed"}), "")
    assert cell.outcome is Detection.CAUGHT_BY_ANOTHER
    assert "test_closed_questions_are_answered failed" in cell.why


@pytest.mark.parametrize("outcome", ["passed", "inconclusive", "skipped", "known failure"])
def test_nobody(fault, ended, outcome):
    """Inconclusive is no pass, and no catch either."""
    assert judge_fault(fault(), ended({NAMED: outcome, OTHER: "passed"}), "").outcome is Detection.MISSED


def test_speed_that_could_not_be_measured_is_left_open(fault, ended):
    cell = judge_fault(fault(seeded_in=Place.LOAD), ended({NAMED: "inconclusive"}), "")
    assert cell.outcome is Detection.NOT_RUN
    assert "too busy" in cell.why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"status": None}, "cut off after 3 s"),
        ({"report": None, "tail": "no module"}, "without a report: no module"),
    ],
)
def test_a_run_that_did_not_end_says_nothing(fault, ended, changes, why):
    cell = judge_fault(fault(), ended({NAMED: "failed"}, **changes), "")
    assert cell.outcome is Detection.NOT_RUN
    assert why in cell.why
    assert judge_healthy("plain", ended({NAMED: "passed"}, **changes), "").verdict is Verdict.INCONCLUSIVE


def test_a_set_up_that_broke_and_a_test_that_is_not_there(fault, ended):
    assert judge_fault(fault(), ended({NAMED: "error"}), "").outcome is Detection.NOT_RUN
    assert "did not run" in judge_fault(fault(), ended({OTHER: "passed"}), "").why


@pytest.mark.parametrize(
    ("outcome", "detection"),
    [("passed", Detection.CAUGHT), ("failed", Detection.MISSED), ("skipped", Detection.NOT_RUN)],
)
def test_a_self_test_catches_by_passing(fault, ended, outcome, detection):
    """Every case of it: one that fails is a fault that got through."""
    run = ended({f"{CARRIER}[one]": "passed", f"{CARRIER}[two]": outcome})
    cell = judge_fault(fault(caught_by=CARRIER), run, "")
    assert cell.outcome is detection
    assert cell.why.startswith("carried by a self-test")


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ({NAMED: "passed", OTHER: "inconclusive"}, Verdict.PASSED),
        ({NAMED: "passed", OTHER: "failed"}, Verdict.FAILED),
        ({NAMED: "passed", OTHER: "error"}, Verdict.FAILED),
        ({NAMED: "inconclusive"}, Verdict.INCONCLUSIVE),
        ({}, Verdict.INCONCLUSIVE),
    ],
)
def test_a_healthy_server(ended, outcomes, verdict):
    run = judge_healthy("plain", ended(outcomes), "")
    assert run.verdict is verdict
    assert bool(run.failed) == (verdict is Verdict.FAILED)
