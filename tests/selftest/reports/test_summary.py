"""The one sentence and the table: what they say of each kind of run, and that nothing missing reads as good."""

from __future__ import annotations

import pytest

from glm5check.records import Outcome
from glm5check.reports.model import CaseOutcome
from glm5check.reports.summary import Verdict, alike, headline, summarise
from tests.selftest.reports.examples import make_case, make_finding, make_measurement, make_report

FAST = make_case("tests/throughput/test_x.py::test_floor")


def test_all_passed():
    summary = summarise(make_report(make_case(), FAST))
    assert summary.verdict is Verdict.GOOD
    assert summary.sentence == "This deployment is right and fast enough: all 2 tests passed."


def test_speed_alone_does_not_make_it_right():
    assert "Correctness was not judged" in summarise(make_report(FAST)).sentence


def test_the_embedded_model_is_not_taken_for_the_real_one():
    assert summarise(make_report(make_case(), setup={"embedded": "yes"})).sentence.startswith("The embedded tiny GLM-5")


def test_the_suite_s_own_tests_say_nothing_about_a_deployment():
    summary = summarise(make_report(make_case("tests/selftest/reports/a.py::b"), setup={"embedded": "yes"}))
    assert summary.sentence == "The suite itself is right: the one test passed."


def test_recorded_traces_are_not_taken_for_this_machine():
    setup = {"embedded": "yes", "trace": "traces"}
    assert summarise(make_report(make_case(), setup=setup)).sentence.startswith("The recorded deployment")


def test_failures_say_what_they_mean():
    bad = make_case(outcome=CaseOutcome.FAILED, findings=(make_finding(Outcome.FAILED),))
    summary = summarise(make_report(bad, make_case("tests/graphs/a.py::b")))
    assert summary.verdict is Verdict.BAD
    assert "should not be used as it is: the model's answers are wrong. 1 of 2 tests failed." in summary.sentence


def test_slow_only_is_told_apart_from_wrong():
    slow = make_case("tests/throughput/a.py::b", CaseOutcome.FAILED)
    assert "is right but too slow" in summarise(make_report(make_case(), slow)).sentence
    assert "is right but" not in summarise(make_report(slow)).sentence


@pytest.mark.parametrize("outcome", [CaseOutcome.INCONCLUSIVE, CaseOutcome.SKIPPED, CaseOutcome.UNFINISHED])
def test_what_is_missing_is_never_good(outcome):
    summary = summarise(make_report(make_case(), make_case("tests/context/a.py::b", outcome)))
    assert summary.verdict is Verdict.OPEN
    assert "context" in summary.sentence


@pytest.mark.parametrize("cases", [(), (make_case(outcome=CaseOutcome.KNOWN),)])
def test_a_run_that_proved_nothing_is_not_good(cases):
    assert summarise(make_report(*cases)).verdict is Verdict.OPEN


def test_a_problem_of_the_run_is_bad():
    summary = summarise(make_report(make_case(), problems=("the list is outdated",)))
    assert summary.verdict is Verdict.BAD
    assert "the list is outdated" in summary.sentence


def test_an_error_is_no_verdict_on_the_product_but_bad():
    summary = summarise(make_report(make_case(), make_case("a.py::b", CaseOutcome.ERROR, message="no file\nmore")))
    assert summary.verdict is Verdict.BAD
    assert summary.sentence == "1 of 2 tests could not be judged because of an error: no file"


def test_an_interrupted_run_says_so_and_where():
    running = make_case("tests/graphs/a.py::hangs", CaseOutcome.UNFINISHED)
    summary = summarise(make_report(make_case(), running, ended=False, interruption="killed"))
    assert summary.verdict is Verdict.OPEN
    assert "cut short" in summary.sentence
    assert "tests/graphs/a.py::hangs" in " ".join(summary.notes)


def test_seeded_faults_are_said_aloud():
    assert "merged_rank" in summarise(make_report(make_case(), setup={"faults": "merged_rank"})).notes[0]


def test_the_headline_is_what_failed():
    good = make_finding(value=1e-7, bound=1e-5, unit="nat")
    bad = make_finding(Outcome.FAILED, check="decode.nll", value=0.4, bound=0.05, unit="nat")
    assert headline([good, bad], []) == "nll 0.4 against 0.05 nat"


def test_the_headline_of_a_failure_is_never_a_number_that_passed():
    good, bad = (
        make_finding(value=1e-7, bound=1e-5),
        make_finding(Outcome.FAILED, check="decode.rows", got="5 unwritten"),
    )
    assert headline([good, bad], []) == "rows: 5 unwritten"


def test_the_same_failure_in_many_places_is_one_story():
    rows = [make_finding(Outcome.FAILED, where={"layer": str(layer)}) for layer in range(3)]
    other = make_finding(Outcome.FAILED, cause="something else")
    assert alike([rows[0], other, *rows[1:]]) == [rows, [other]]


def test_the_headline_is_else_a_speed():
    floor = make_finding(check="throughput.floor", value=57.0, bound=54.0, unit="tok/s", where={"measure": "decode.x"})
    assert headline([make_finding(value=1.0), floor], []) == "decode.x 57 against 54 tok/s"
    assert headline([], [make_measurement("decode.x", "tok/s", 57.0)]) == "decode.x 57 tok/s"


def test_the_headline_is_else_what_came_nearest_to_its_bound():
    far, near = make_finding(value=1e-9, bound=1e-5), make_finding(check="decode.nll", value=0.04, bound=0.05)
    assert headline([far, near], []) == "nll 0.04 against 0.05"
