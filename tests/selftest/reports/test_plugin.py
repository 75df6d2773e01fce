"""--glm5-report: what a healthy, a faulty, an interrupted and a killed run leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest

from glm5check.reports import journal, json_report
from glm5check.reports.model import CaseOutcome
from glm5check.reports.summary import summarise
from tests.selftest.reports.conftest import PLUGINS
from tests.selftest.reports.examples import FAULTY, SUITE

SLOW = (
    SUITE
    + """
    import os, signal, time

    def test_slow(verdict):
        verdict([finding(Outcome.PASSED)])
        open("here", "w").close()
        time.sleep(60)
"""
)


def outcomes(report):
    return {case.nodeid.rpartition("::")[2]: case.outcome for case in report.cases}


@pytest.fixture
def read(pytester):
    return lambda: json_report.read(pytester.path / "report" / json_report.FILE)


def test_a_healthy_run(run, read, pytester):
    result = run(SUITE)
    assert result.ret == 0
    report = read()
    assert outcomes(report) == {"test_right": CaseOutcome.PASSED}
    assert (report.ended, report.exit_status, report.collected) == (True, 0, 1)
    assert [one.samples for one in report.measurements] == [(57.0, 58.0, 59.0)]
    assert report.setup["embedded"] == "yes"
    assert {path.name for path in (pytester.path / "report").iterdir()} == {
        "findings.jsonl",
        "report.html",
        "report.json",
        "report.md",
    }
    result.stdout.fnmatch_lines(["concern*verdict*headline number*evidence*", "*decode*good*58 tok/s*1 passed*"])
    result.stdout.fnmatch_lines(["*The embedded tiny GLM-5 on this machine is right: the one test passed.*"])


def test_a_faulty_run(run, read):
    result = run(FAULTY)
    assert result.ret == 1
    report = read()
    assert outcomes(report) == {
        "test_right": CaseOutcome.PASSED,
        "test_wrong": CaseOutcome.FAILED,
        "test_undecided": CaseOutcome.INCONCLUSIVE,
        "test_broken": CaseOutcome.ERROR,
    }
    wrong = report.of(CaseOutcome.FAILED)[0]
    assert wrong.findings[1].repeat == "ask it again"
    assert wrong.repeat.startswith("pytest ")
    assert report.of(CaseOutcome.ERROR)[0].message.startswith("OSError: the server is gone\n")
    assert report.of(CaseOutcome.INCONCLUSIVE)[0].message.startswith("context.needle")


def test_inconclusive_alone_exits_0_and_says_that_it_is_no_pass(run, read):
    suite = SUITE + "\n    def test_undecided(verdict):\n        verdict([finding(Outcome.INCONCLUSIVE)])\n"
    result = run(suite)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*Nothing failed and 1 passed, but 1 of 2 tests lacked evidence (decode): not a full pass.*"]
    )
    assert run(suite, "--glm5-strict").ret == 1
    assert outcomes(read())["test_undecided"] is CaseOutcome.FAILED
    assert "evidence about decode is missing" in summarise(read()).sentence


def test_an_interrupt_still_gives_a_report(run, read):
    result = run(
        SUITE + "\n    def test_stop():\n        raise KeyboardInterrupt\n\n    def test_never():\n        pass\n"
    )
    assert result.ret == 2
    report = read()
    assert outcomes(report) == {"test_right": CaseOutcome.PASSED, "test_stop": CaseOutcome.UNFINISHED}
    assert report.interruption == "KeyboardInterrupt"
    assert report.collected == 3


@pytest.fixture
def started(pytester, environment):
    """A run in a process of its own that has reached `test_slow`."""
    pytester.makepyfile(SLOW)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *PLUGINS, "--glm5-report=report"],
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(pytester.path / "here")
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()


def test_a_killed_run_leaves_a_journal_that_the_command_reads(pytester, environment, started, read):
    started.kill()
    started.wait()
    assert not (pytester.path / "report" / json_report.FILE).exists()
    command = [sys.executable, "-c", "from glm5check.cli import main; main()", "report", "report"]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 2
    assert "cut short" in made.stdout
    assert "test_slow" in made.stdout
    assert outcomes(read()) == {"test_right": CaseOutcome.PASSED, "test_slow": CaseOutcome.UNFINISHED}
    assert "Interrupted" in (pytester.path / "report" / "report.html").read_text(encoding="utf-8")


def test_a_run_that_is_told_to_stop_writes_its_report(started, read):
    started.terminate()
    assert started.wait(timeout=60) == pytest.ExitCode.INTERRUPTED
    report = read()
    assert report.interruption == "KeyboardInterrupt: stopped by SIGTERM"
    assert outcomes(report)["test_slow"] is CaseOutcome.UNFINISHED


def wait_for(path, limit_s=60.0):
    end = time.monotonic() + limit_s
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not appear"
        time.sleep(0.05)


def test_the_journal_grows_test_by_test(run, pytester):
    suite = (
        SUITE
        + """
    def test_after():
        from pathlib import Path
        lines = Path("report/findings.jsonl").read_text().splitlines()
        assert any('"type":"finding"' in line for line in lines)
        assert any('"type":"ended"' in line and "test_right" in line for line in lines)
"""
    )
    assert run(suite).ret == 0


def test_numbers_are_properties_in_junit(run, pytester):
    run(SUITE, "--junitxml=junit.xml")
    properties = {
        element.get("name"): element.get("value")
        for element in ElementTree.parse(pytester.path / "junit.xml").iter("property")
    }
    assert properties == {"decode.mean_kl [tp=2], nat": "0.03", "throughput.decode [], tok/s": "58.0"}


def test_the_job_summary_of_github_is_written(pytester, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary.md"))
    pytester.makepyfile(FAULTY)
    pytester.runpytest_inprocess(*PLUGINS, "--glm5-report=report")
    text = (pytester.path / "summary.md").read_text(encoding="utf-8")
    assert text == (pytester.path / "report" / "report.md").read_text(encoding="utf-8")
    assert text.startswith("## ❌")


def test_the_fingerprint_is_in_the_report(run, read):
    suite = (
        SUITE
        + """
    from fixtures.measure import FINGERPRINT

    def test_server(pytestconfig):
        pytestconfig.stash[FINGERPRINT] = {"version.vllm": "0.32.0"}
"""
    )
    run(suite)
    assert read().fingerprint == {"version.vllm": "0.32.0"}


def test_a_module_that_cannot_be_collected_is_an_error(run, read):
    assert run("import no_such_module_at_all").ret == 2
    assert [case.outcome for case in read().cases] == [CaseOutcome.ERROR]


def test_quiet_says_nothing_and_collecting_writes_nothing(run, pytester):
    assert "headline" not in run(SUITE, "-q").stdout.str()
    (pytester.path / "report" / journal.JOURNAL).unlink()
    run(SUITE, "--collect-only")
    assert not (pytester.path / "report" / journal.JOURNAL).exists()


def test_stopping_at_the_first_failure_is_an_interruption(run, read):
    run(FAULTY, "-x")
    assert "stopping after 1 failures" in read().interruption


@pytest.mark.parametrize("option", ["--glm5-report=taken/report", "--glm5-baseline=empty"])
def test_what_cannot_be_used_is_said_before_anything_runs(run, pytester, option):
    (pytester.path / "taken").touch()
    (pytester.path / "empty").mkdir()
    result = run(SUITE, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "what to do:" in result.stderr.str() + result.stdout.str()


def test_a_report_of_several_workers_is_refused(run, pytester):
    """Stands for pytest-xdist, which is no dependency: `-n` is its option."""
    pytester.makepyfile(workers="def pytest_addoption(parser): parser.addoption('--numprocesses', type=int)")
    pytester.syspathinsert()
    result = run(SUITE, "-p", "workers", "--numprocesses=2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--glm5-report and -n contradict each other" in result.stderr.str()


def test_a_measurement_without_a_number_fails_its_test(run, read):
    suite = (
        SUITE
        + """
    def test_nan(measure):
        measure(Measurement(name="x", unit="s", samples=(float("nan"),), higher_is_better=True))
"""
    )
    run(suite)
    assert outcomes(read())["test_nan"] is CaseOutcome.ERROR
