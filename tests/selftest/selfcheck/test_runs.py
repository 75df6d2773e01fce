"""A run of pytest does not outlive its limit, nor us, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from glm5check.selfcheck import runs
from glm5check.selfcheck.runs import Runs

ROOT = Path(__file__).parents[3]
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
QUICK_TEST = "tests/selftest/selfcheck/test_judging.py::test_another_test"


def test_the_outcome_comes_from_the_report(tmp_path):
    ended = Runs(ROOT).run([QUICK_TEST], tmp_path, limit_s=60, environment={"OMP_NUM_THREADS": "1"})
    assert (ended.status, ended.problem) == (0, "")
    assert [(case.nodeid, case.outcome) for case in ended.report.cases] == [(QUICK_TEST, "passed")]


def test_a_run_that_finds_no_tests_judges_nothing(tmp_path):
    ended = Runs(ROOT).run(["tests/nowhere"], tmp_path, limit_s=60, environment={})
    assert ended.status not in (0, 1)
    assert ended.problem or not ended.report.cases


def test_a_run_is_cut_off_at_its_limit(tmp_path):
    ended = Runs(ROOT).run([QUICK_TEST], tmp_path, limit_s=0.2, environment={})
    assert ended.status is None
    assert "cut off" in ended.problem


def test_stopping_ends_what_runs_and_starts_nothing_more(tmp_path):
    every = Runs(ROOT)
    threading.Timer(1.0, every.stop).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        every.run(["tests/selftest/statistics"], tmp_path, limit_s=120, environment={})
    assert time.monotonic() - began < 60
    with pytest.raises(KeyboardInterrupt):
        every.run([QUICK_TEST], tmp_path, limit_s=60, environment={})


def test_what_ignores_a_request_is_killed_with_its_children(monkeypatch):
    monkeypatch.setattr(runs, "TERM_GRACE_S", 0.5)
    monkeypatch.setattr(runs, "CHILD_GRACE_S", 0.5)
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    runs.end(process)
    process.stdout.close()
    assert process.poll() is not None
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
