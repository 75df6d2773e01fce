"""The sample pipelines: each is well-formed, has what a nightly gate needs, and the script that they all call works."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.selftest.docs.stubs import PIPELINES, ROOT, write_stubs


@pytest.fixture
def night(tmp_path):
    """Start nightly.sh with stubs for `python` and `glm5check`; the process, and how the stubs were called."""
    write_stubs(tmp_path / "bin", "python", "glm5check")
    log = tmp_path / "log"

    def start(*options: str, **environment: str):
        return subprocess.Popen(
            [str(PIPELINES / "nightly.sh"), str(tmp_path / "reports"), str(tmp_path / "history"), *options],
            env={
                "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
                "LOG": str(log),
                "FAIL": "",
                "CRASH": "",
                "HANG": "",
                **environment,
            },
        )

    def run(*options: str, **environment: str):
        status = start(*options, **environment).wait(timeout=60)
        return status, log.read_text().splitlines()

    run.start = start
    return run


def test_correctness_comes_first_and_the_night_is_kept(night):
    status, calls = night("--glm5-model=x.gguf")
    assert status == 0
    assert [call.split()[0] for call in calls] == ["python", "python", "glm5check"]
    assert "-m not perf" in calls[0]
    assert "-m perf" in calls[1]
    assert all(call.endswith("--glm5-model=x.gguf") for call in calls[:2])
    assert "--glm5-baseline" not in calls[1]
    assert calls[2].endswith("--history " + calls[2].split()[-1])


def test_earlier_nights_are_the_baseline(night, tmp_path):
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "night.json").touch()
    _, calls = night()
    assert f"--glm5-baseline={tmp_path / 'history'}" in calls[1]


def test_speed_is_not_measured_on_what_is_wrong(night):
    status, calls = night(FAIL="correctness")
    assert status == 1
    assert len(calls) == 1


def test_a_crash_still_gives_a_page(night):
    status, calls = night(CRASH="correctness")
    assert status == 1
    assert calls[1].startswith("glm5check report ")


def test_whoever_stops_the_script_stops_pytest(night, tmp_path):
    process = night.start(HANG="correctness")
    report = tmp_path / "reports" / "correctness"
    end = time.monotonic() + 30
    while not (report / "here").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 2
    assert (report / "told").exists()


def test_an_upgrade_is_right_first_and_compared_on_the_same_machine(tmp_path):
    log = tmp_path / "log"
    write_stubs(tmp_path, "old", "new")
    command = [PIPELINES / "upgrade.sh", tmp_path / "reports", tmp_path / "old", tmp_path / "new", "--glm5-gpus=8"]
    environment = {"PATH": os.environ["PATH"], "LOG": str(log), "FAIL": "", "CRASH": "", "HANG": ""}
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    calls = log.read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["new", "old", "new"]
    assert f"--glm5-baseline={tmp_path}/reports/old-perf/report.json" in calls[2]
    assert subprocess.run(command, env={**environment, "FAIL": "correctness"}, check=False).returncode == 1
    assert len(log.read_text().splitlines()) == 4


def test_github_actions():
    job = yaml.safe_load((PIPELINES / "github-actions.yml").read_text())["jobs"]["nightly"]
    assert "self-hosted" in job["runs-on"]
    assert job["env"]["GLM5_API_KEY"] == "${{ secrets.GLM5_API_KEY }}"
    upload = job["steps"][-1]
    assert upload["if"] == "always()"
    assert upload["with"]["retention-days"] > 0
    assert any("nightly.sh" in step.get("run", "") for step in job["steps"])


def test_buildkite():
    (step,) = yaml.safe_load((PIPELINES / "buildkite.yml").read_text())["steps"]
    assert "nightly.sh report" in step["command"]
    assert step["artifact_paths"] == ["report/**/*"]
    assert re.search(r"(?<!\$)\$[A-Z]", step["command"]) is None, (
        "Buildkite would fill this in when it uploads the file"
    )


def test_slurm():
    text = (PIPELINES / "slurm.sbatch").read_text()
    assert text.startswith("#!")
    directives = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", text, re.MULTILINE))
    assert directives["gpus-per-node"] == "8"
    assert directives["signal"] == "B:TERM@120"
    assert "exec docs/pipelines/nightly.sh" in text


def test_kubernetes():
    spec = yaml.safe_load((PIPELINES / "kubernetes.yaml").read_text())["spec"]
    job = spec["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert (spec["concurrencyPolicy"], job["backoffLimit"]) == ("Forbid", 0)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    keys = {entry["name"]: entry for entry in container["env"]}
    assert "secretKeyRef" in keys["GLM5_API_KEY"]["valueFrom"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in job["template"]["spec"]["volumes"]}
    assert "exec docs/pipelines/nightly.sh" in container["args"][0]


@pytest.mark.parametrize("path", sorted(PIPELINES.iterdir()), ids=lambda path: path.name)
def test_no_file_holds_a_secret_or_a_machine(path):
    text = path.read_text()
    assert not re.search(r"sk-\w|hf_\w|ghp_\w|password\s*[:=]", text, re.IGNORECASE)


@pytest.mark.slow
def test_a_night_with_the_embedded_model(tmp_path):
    """The script as it is, with a correctness part that needs no server and a perf part that does."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("GITHUB_STEP_SUMMARY", None)
    parts = [ROOT / "tests" / "checkpoint", ROOT / "tests" / "throughput" / "test_decode.py"]
    command = [PIPELINES / "nightly.sh", tmp_path / "reports", tmp_path / "history", *parts]
    assert subprocess.run(command, cwd=ROOT, env=environment, check=False, timeout=850).returncode == 0
    for part in ("correctness", "perf"):
        assert (tmp_path / "reports" / part / "report.html").is_file()
        assert (tmp_path / "reports" / part / "junit.xml").is_file()
    assert len(list((tmp_path / "history").glob("*.json"))) == 1
