"""--glm5-known-failures: what is excused, and what makes the run fail."""

from __future__ import annotations

import pytest

from glm5check.reports import json_report
from glm5check.reports.model import CaseOutcome
from tests.selftest.reports.examples import FAULTY, SUITE

LATER, PAST = "2999-01-01", "2001-01-01"
WRONG = (
    SUITE
    + """
    @pytest.mark.parametrize("prompt", ["fox", "hen"])
    def test_wrong(verdict, prompt):
        verdict([finding(Outcome.FAILED)])
"""
)


def entry(until=LATER, reason="upstream 103", **key):
    ((name, value),) = key.items()
    return f'[[known]]\n{name} = "{value}"\nreason = "{reason}"\nuntil = {until}\n'


@pytest.fixture
def judge(run, pytester):
    """Run a suite with a list of known failures; the result and the report's outcomes by test name."""

    def run_with(suite, known, *options):
        (pytester.path / "known.toml").write_text(known, encoding="utf-8")
        result = run(suite, "--glm5-known-failures=known.toml", "-ra", *options)
        path = pytester.path / "report" / json_report.FILE
        report = json_report.read(path) if path.exists() else None
        return result, report

    return run_with


def file_of(pytester):
    return f"{pytester._name}.py"


def outcome(report, name):
    return {case.nodeid.rpartition("::")[2]: case.outcome for case in report.cases}[name]


@pytest.mark.parametrize("of", ["::test_wrong", "::test_wrong[fox]"])
def test_a_listed_test_that_fails_is_known(judge, pytester, of):
    result, report = judge(WRONG, entry(test=file_of(pytester) + of))
    assert outcome(report, "test_wrong[fox]") is CaseOutcome.KNOWN
    assert (result.ret == 0) is ("[" not in of)
    assert "upstream 103" in report.of(CaseOutcome.KNOWN)[0].message


def test_a_listed_check_that_fails_is_known(judge):
    result, report = judge(WRONG, entry(check="decode.mean_kl"))
    assert result.ret == 0
    assert len(report.of(CaseOutcome.KNOWN)) == 2
    result.stdout.fnmatch_lines(["*upstream 103 (known until 2999-01-01)*"])


def test_a_test_with_another_failed_check_still_fails(judge):
    result, report = judge(FAULTY, entry(check="decode.mean_kl"))
    assert result.ret == 1
    assert outcome(report, "test_wrong") is CaseOutcome.FAILED


def test_an_error_is_never_known(judge, pytester):
    _, report = judge(FAULTY, entry(test=f"{file_of(pytester)}::test_broken"))
    assert outcome(report, "test_broken") is CaseOutcome.ERROR


def test_a_known_failure_that_passes_fails(judge, pytester):
    result, report = judge(SUITE, entry(test=f"{file_of(pytester)}::test_right"))
    assert result.ret == 1
    assert outcome(report, "test_right") is CaseOutcome.FAILED


def test_a_known_check_that_passes_fails(judge):
    result, report = judge(SUITE, entry(check="decode.mean_kl"))
    assert result.ret == 1
    assert report.exit_status == 1
    assert "passes now" in report.problems[0]
    result.stdout.fnmatch_lines(["*known failure decode.mean_kl passes now*"])


@pytest.mark.parametrize("key", ["test", "check"])
def test_an_entry_that_matches_nothing_fails(judge, pytester, key):
    value = f"{file_of(pytester)}::test_gone" if key == "test" else "decode.no_such_check"
    result, report = judge(SUITE, entry(**{key: value}))
    assert result.ret == 1
    assert "matches no" in report.problems[0]


def test_an_entry_of_a_file_that_is_gone_fails(judge):
    assert "matches no test" in judge(SUITE, entry(test="tests/gone.py::test_x"))[1].problems[0]


def test_a_partial_run_calls_nothing_outdated(judge, pytester):
    known = entry(test=f"{file_of(pytester)}::test_wrong") + entry(check="decode.no_such_check")
    result, report = judge(WRONG, known, "-k", "test_right")
    assert result.ret == 0
    assert report.problems == ()


def test_an_empty_list_excuses_nothing(judge):
    assert judge(WRONG, "")[0].ret == 1


def test_an_expired_entry_excuses_nothing_and_is_mentioned(judge):
    result, report = judge(WRONG, entry(until=PAST, check="decode.mean_kl"))
    assert result.ret == 1
    assert "was known until 2001-01-01: upstream 103" in report.of(CaseOutcome.FAILED)[0].message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("known = 3", "known"),
        ("[[known]", "Expected"),
        ('[[known]]\ntest = "a"\nreason = "b"', "until"),
        ('[[known]]\ntest = "a"\nreason = " "\nuntil = 2999-01-01', "needs a reason"),
        ('[[known]]\ntest = "a"\ncheck = "b"\nreason = "c"\nuntil = 2999-01-01', "either test or check"),
        ('[[known]]\nreason = "c"\nuntil = 2999-01-01', "either test or check"),
        ('[[known]]\ntets = "a"\nreason = "c"\nuntil = 2999-01-01', "tets"),
        ("[other]\nx = 1", "other"),
    ],
)
def test_a_list_that_cannot_be_read_is_a_usage_error(judge, text, message):
    result, _ = judge(SUITE, text)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()
