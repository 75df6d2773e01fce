"""Each pipeline passes the linter of its kind, none of which needs a network: and each linter finds a planted fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.selftest.docs.scripts import BUILDKITE, FILES, KUBERNETES, WORKFLOWS, inside

BIN = Path(sys.executable).parent
GITHUB = (BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows")
BUILD = (BIN / "check-jsonschema", "--builtin-schema", "vendor.buildkite")
KUBE = (BIN / "kubernetes-validate", "--strict")
SHELL = (BIN / "shellcheck", "--shell=bash")


def lint(linter: tuple[object, ...], path: Path) -> str:
    """What the linter objects to; empty if nothing."""
    done = subprocess.run([*map(str, linter), str(path)], capture_output=True, text=True, check=False, timeout=120)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize(
    ("linter", "path"),
    [
        *((GITHUB, path) for path in WORKFLOWS),
        (BUILD, BUILDKITE),
        (KUBE, KUBERNETES),
        *((SHELL, file) for file in FILES),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_a_file_passes_its_linter(linter, path):
    assert lint(linter, path) == ""


@pytest.mark.parametrize("name", sorted(inside()))
def test_a_script_inside_a_file_passes_its_linter(name, tmp_path):
    path = tmp_path / "script"
    path.write_text(inside()[name])
    # `source .venv/bin/activate`: there is none to read.
    assert lint((*SHELL, "--exclude=SC1091"), path) == ""


@pytest.mark.parametrize(
    ("linter", "path", "right", "wrong"),
    [
        (GITHUB, WORKFLOWS[0], "runs-on:", "run-on:"),
        (GITHUB, WORKFLOWS[0], "timeout-minutes: 240", "timeout-minutes: soon"),
        (BUILD, BUILDKITE, "concurrency: 1", "concurrency: one"),
        (BUILD, BUILDKITE, "timeout_in_minutes:", "timeout_minutes:"),
        (KUBE, KUBERNETES, "concurrencyPolicy:", "concurencyPolicy:"),
        (KUBE, KUBERNETES, "backoffLimit: 0", "backoffLimit: none"),
        (SHELL, FILES[0], '"$reports/perf" --history "$history"', "$reports/perf --history $history"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_planted_fault_is_found(linter, path, right, wrong, tmp_path):
    text = path.read_text()
    assert right in text
    broken = tmp_path / path.name
    broken.write_text(text.replace(right, wrong))
    assert lint(linter, broken)
