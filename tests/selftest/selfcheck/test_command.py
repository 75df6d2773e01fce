"""The command itself: one fault for each place, with a server for one of them; and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
