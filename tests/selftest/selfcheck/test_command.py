"""The command itself: one fault for each place, with a server for one of them; and what it refuses."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from click.testing import CliRunner

from glm5check.cli import cli
from glm5check.reports import matrix as matrices
from glm5check.reports.matrix import Detection
from glm5check.selfcheck import registry, score

ROOT = Path(__file__).parents[3]


def test_the_quick_ones_are_caught(tmp_path):
    """The only test here that starts a server; two runs at a time, for they take half a minute each at most."""
    command = [sys.executable, "-m", "glm5check", "selfcheck", "--quick", "--jobs=2", f"--out={tmp_path}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    caught = matrices.read(tmp_path / matrices.FILE).of(Detection.CAUGHT)
    assert sorted(cell.name for cell in caught) == sorted(registry.QUICK)


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_keeps_what_is_done_and_leaves_nothing_running(tmp_path):
    command = [sys.executable, "-m", "glm5check", "selfcheck", "file_cut", "config_softmax", f"--out={tmp_path}"]
    # As from a terminal, also where these tests run in the background of a shell, which ignores SIGINT there.
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=_heed_ctrl_c) as run:
        lines = [run.stdout.readline(), run.stdout.readline()]
        time.sleep(1.0)
        under_way = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGINT)
        rest = run.stdout.read()
        assert run.wait(100) == 2
    assert "file_cut: caught" in lines[1]
    assert "interrupted; what is done is in" in rest
    assert under_way
    assert not psutil.wait_procs(under_way, timeout=10)[1]
    assert [path.stem for path in (tmp_path / "cells").iterdir()] == ["file_cut"]


def test_an_unknown_fault_is_refused(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "glm5check", "selfcheck", "phantom", f"--out={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 2
    assert "no fault is called phantom" in run.stderr
    assert "file_cut" in run.stderr


def test_the_score_is_written_from_the_matrix_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{score.BEGIN}\n{score.END}\n", encoding="utf-8")
    committed = ROOT / "fixtures" / "data" / "selfcheck"
    result = CliRunner().invoke(cli, ["selfcheck", f"--write-score={page}", f"--out={committed}"])
    assert result.exit_code == 0
    assert page.read_text(encoding="utf-8") == score.render(matrices.read(committed / matrices.FILE)) + "\n"
