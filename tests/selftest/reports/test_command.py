"""`glm5check report DIR`: from the journal or from report.json, with a history, with exit codes 0, 1 and 2."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from glm5check.cli.report import report as command
from glm5check.errors import ReportError
from glm5check.records import Outcome
from glm5check.reports import json_report
from glm5check.reports.model import CaseOutcome
from tests.selftest.reports.examples import make_case, make_finding, make_report

GOOD = make_report(make_case(findings=(make_finding(),)))
BAD = make_report(make_case(outcome=CaseOutcome.FAILED, findings=(make_finding(Outcome.FAILED),)))
OPEN = make_report(make_case(outcome=CaseOutcome.INCONCLUSIVE))


@pytest.fixture
def invoke(tmp_path):
    def run(report, *options):
        (tmp_path / json_report.FILE).write_bytes(json_report.render(report))
        return CliRunner().invoke(command, [str(tmp_path), *options])

    return run


@pytest.mark.parametrize(("report", "status"), [(GOOD, 0), (BAD, 1), (OPEN, 2)], ids=["good", "bad", "open"])
def test_the_exit_code_is_the_verdict(invoke, tmp_path, report, status):
    result = invoke(report)
    assert result.exit_code == status
    assert (tmp_path / "report.html").is_file()
    assert json_report.read(tmp_path / json_report.FILE) == report


def test_a_history_grows_and_is_shown(invoke, tmp_path):
    kept = tmp_path / "history"
    assert invoke(GOOD, f"--history={kept}").exit_code == 0
    assert invoke(GOOD, f"--history={kept}").exit_code == 0
    assert len(list(kept.iterdir())) == 1


def test_a_directory_without_a_run_is_refused(tmp_path):
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert isinstance(result.exception, ReportError)
