"""Every pipeline's own script runs here, as its job system would run it, and says to pytest what it should.

The commands that come out are the two of nightly.sh. With the embedded model they select together what
`tox run -e accept` runs on every change, so running them whole once more would show nothing new; a short night runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fixtures.options import EMBEDDED
from tests.selftest.docs.commands import faults_of
from tests.selftest.docs.scripts import BUILDKITE, KUBERNETES, SLURM, inside
from tests.selftest.docs.stubs import PIPELINES, ROOT, write_stubs

MODEL = "/models/GLM-5.gguf"
CONFIG = "/models/GLM-5"
SCRIPTS = {**inside(), SLURM.name: SLURM.read_text(encoding="utf-8")}
SCRIPTS.pop("check.yml-check")  # runs .ci/run, which runs this
SPEED = """
    import pytest
    from glm5check.records import Measurement

    @pytest.mark.perf
    def test_speed(measure):
        measure(Measurement(name="decode.x", unit="tok/s", samples=(57.0, 58.0), higher_is_better=True))
"""


@pytest.fixture
def job(tmp_path):
    """Run a script beside nothing but the pipelines, python and glm5check replaced; how they were called."""
    write_stubs(tmp_path / "bin", "python", "python3", "glm5check")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "pipelines").symlink_to(PIPELINES)
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "LOG": str(log), "HOME": str(tmp_path)}
    environment |= {"GLM5_MODEL": MODEL, "GLM5_CONFIG": CONFIG, "FAIL": "", "CRASH": "", "HANG": ""}

    def run(script: str) -> list[str]:
        subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, check=True, timeout=60)
        return log.read_text().splitlines()

    return run


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_every_pipeline_ends_in_the_two_commands_of_a_night(name, job, tmp_path):
    if name == SLURM.name:
        job("python3 -m venv .venv")  # it takes one that is there
    calls = job(SCRIPTS[name].replace("/reports", f"{tmp_path}/reports"))
    correctness, perf, kept = [call for call in calls if "-m venv" not in call and "-m pip" not in call]
    options = f"--glm5-model={MODEL} --glm5-config={CONFIG} --glm5-gpus=8"
    assert correctness.startswith("python -m pytest -m not perf --glm5-report=")
    assert perf.startswith("python -m pytest -m perf --glm5-report=")
    for call in (correctness, perf):
        assert call.endswith(options)
        assert faults_of(call.replace("-m not perf", "-m 'not perf'")) == []
    assert kept.startswith("glm5check report ")
    assert faults_of(kept) == []


@pytest.mark.parametrize("name", ["github-actions.yml-nightly", BUILDKITE.name])
def test_what_a_pipeline_installs_exists(name, job):
    assert name in SCRIPTS
    assert KUBERNETES.name in SCRIPTS
    (install,) = [call for call in job(SCRIPTS[name]) if "-m pip" in call]
    assert install == "python -m pip install --editable .[gpu]"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "gpu" in project["optional-dependencies"]


def test_a_short_night(pytester, tmp_path):
    """With the real pytest: what needs no server, and one number in place of the speed tests."""
    speed = pytester.makepyfile(test_speed=SPEED)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("GITHUB_STEP_SUMMARY", None)
    tests = [ROOT / "tests" / "checkpoint" / "test_files.py", speed, f"--config-file={ROOT / 'pyproject.toml'}"]
    model = next(EMBEDDED.glob("*00001-of*.gguf"))
    options = [f"--glm5-model={model}", f"--glm5-config={EMBEDDED}", "-p", "no:cacheprovider", "-q"]
    command = [PIPELINES / "nightly.sh", tmp_path / "night", tmp_path / "history", *tests, *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for part in ("correctness", "perf"):
        for file in ("report.html", "report.json", "report.md", "findings.jsonl", "junit.xml"):
            assert (tmp_path / "night" / part / file).is_file()
    assert len(list((tmp_path / "history").glob("*.json"))) == 1
