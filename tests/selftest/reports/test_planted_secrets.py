"""No secret gets into any file: planted in environment, options, URLs and answers, while every path that writes runs.

Texts of findings and tracebacks are in `test_redaction.py`.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from fixtures.options import EMBEDDED
from glm5check import fingerprint
from glm5check.cli import main
from glm5check.cli import preflight as preflights
from glm5check.collectives.results import Combination, CombinationResult, Status
from glm5check.errors import ServerError
from glm5check.redaction import REDACTED
from glm5check.reports import sweep_report
from glm5check.serving.command import LaunchPlan
from glm5check.serving.launch import launch
from glm5check.serving.sweep import JOURNAL, Candidate, Plan, run
from tests.selftest.reports.conftest import PLUGINS
from tests.selftest.reports.planted import (
    ARGUMENT,
    BASIC,
    BEARER,
    ENVIRONMENT,
    KEY,
    MARK,
    PASSWORD_IN_URL,
    TALKATIVE_SERVER,
    TOKEN,
    leaks,
    stub,
)

MODEL = sorted(EMBEDDED.glob("*.gguf"))[0]
ATTACHED = """
    import pytest
    from fixtures.measure import FINGERPRINT
    from glm5check.serving.load import Load, run_load
    from glm5check.settings import Settings

    def test_fingerprint(fingerprint, pytestconfig):
        pytestconfig.stash[FINGERPRINT] = {**fingerprint.identity, **fingerprint.state}

    def test_refused(server):
        server.client.chat("x", "Hello", max_tokens=1)

    def test_load(server, settings):
        load = Load(model=server.model, requests=1, concurrency=1, input_tokens=4, output_tokens=1, warmup=0)
        raise OSError(f"{run_load(server.base_url, load, api_key=settings.api_key)} from {server} with {settings}")

    def test_stopped(server):
        raise KeyboardInterrupt(f"stopped while it talked to {server.base_url}")
"""
SERVED = [word for name in ("progress", "measure", "serving", "fingerprint") for word in ("-p", f"fixtures.{name}")]


@pytest.fixture(autouse=True)
def planted(monkeypatch, tmp_path):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))


@pytest.mark.parametrize(("user", "authorization"), [("", BEARER), (f"somebody:{PASSWORD_IN_URL}@", BASIC)])
def test_a_golden(user, authorization, tmp_path, monkeypatch):
    if user:
        monkeypatch.delenv("GLM5_API_KEY")
    with stub() as (host, authorizations), pytest.raises(SystemExit) as ended:
        main(["record", f"http://{user}{host}", f"--model={MODEL}", f"--output={tmp_path / 'new' / 'golden.json'}"])
    assert ended.value.code == 0
    assert set(authorizations) == {authorization}, "the server was told"
    assert (tmp_path / "new" / "golden.json").read_text().count(REDACTED) > 3
    assert leaks(tmp_path) == []


@pytest.mark.parametrize("user", ["", f"somebody:{PASSWORD_IN_URL}@"])
def test_a_whole_session_with_an_attached_server(user, pytester, tmp_path, monkeypatch):
    """Its journal, three reports, JUnit, the job's summary, pytest's own log, the history, and the terminal."""
    if user:
        monkeypatch.delenv("GLM5_API_KEY")
    pytester.makepyfile(ATTACHED)
    report = tmp_path / "report"
    with stub() as (host, authorizations):
        options = [f"--glm5-attach=http://{user}{host}", f"--glm5-report={report}", f"--junitxml={report}/junit.xml"]
        logs = [f"--log-file={report}/pytest.log", "--log-file-level=DEBUG", "-l", "-ra"]
        result = pytester.runpytest_inprocess(*PLUGINS, *SERVED, *options, *logs, no_reraise_ctrlc=True)
    assert set(authorizations) == {BASIC if user else BEARER}
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert MARK not in result.stdout.str() + result.stderr.str()
    with pytest.raises(SystemExit):
        main(["report", str(report), f"--history={tmp_path / 'history'}"])
    written = {path.name for path in report.iterdir()}
    wanted = {"findings.jsonl", "report.json", "report.html", "report.md", "junit.xml", "pytest.log"}
    assert wanted <= written
    assert (tmp_path / "summary.md").stat().st_size > 0
    assert len(list((tmp_path / "history").iterdir())) == 1
    assert REDACTED in (report / "report.json").read_text()
    assert leaks(tmp_path) == []


def test_a_wrong_option_is_told_without_it(pytester):
    result = pytester.runpytest_inprocess(*PLUGINS, f"--glm5-attach=ftp://somebody:{PASSWORD_IN_URL}@host")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "is no URL" in result.stderr.str()
    assert MARK not in result.stderr.str()


def server_plan(directory: Path) -> LaunchPlan:
    return LaunchPlan(
        command=(sys.executable, "-c", TALKATIVE_SERVER, "--hf-token", ARGUMENT, f"http://u:{MARK}@hub.example"),
        environment=dict(os.environ),
        base_url="http://127.0.0.1:9",
        served_model="glm5",
        device="cpu",
        niceness=0,
        log_path=directory / "server" / "server.log",
        profile_dir=directory / "server" / "profile",
        nccl_log_pattern=str(directory / "server" / "nccl.%h.%p.log"),
    )


def test_the_log_of_a_server_that_prints_what_it_was_given(tmp_path):
    with pytest.raises(ServerError) as failed, launch(server_plan(tmp_path), ranks=2, progress=lambda line: None):
        pass
    log = (tmp_path / "server" / "server.log").read_text()
    assert "PLANTED_TOKEN" in log
    assert f"RuntimeError: cannot log in with {REDACTED}" in log
    assert leaks(tmp_path) == []
    assert MARK not in str(failed.value)


def test_the_fingerprint_of_a_process():
    import subprocess

    program = "import time; print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", program, "--hf-token", ARGUMENT, TOKEN]
    command += [f"--proxy={ENVIRONMENT['VLLM_PROXY_URL']}", KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # a process has no command line yet for a moment after it was started
        facts = fingerprint.of_process(process.pid, model={"name": "glm5"}).identity
        process.kill()
    assert f"--proxy=http://{REDACTED}@proxy.example:3128" in facts["process.command"]
    assert facts["environment.VLLM_PROXY_URL"] == f"http://{REDACTED}@proxy.example:3128"
    assert MARK not in str(facts)


def test_a_sweep(tmp_path):
    """Of a candidate with secrets, whose server fails with them in its message."""

    @contextmanager
    def start(candidate):
        raise ServerError(f"{candidate.serve_args} said {KEY}, {TOKEN}, {ARGUMENT}")
        yield

    candidate = Candidate(
        name="with a token", environment={"HF_TOKEN": "short", **ENVIRONMENT}, serve_args=("--hf-token", ARGUMENT)
    )
    said: list[str] = []
    ranks = run(Plan(candidate=(candidate,)), start, tmp_path / JOURNAL, identity="x", say=said.append)
    sweep_report.write(ranks, tmp_path, "tiny on 2 ranks")
    table = (tmp_path / sweep_report.TABLE).read_text()
    assert "HF\\_TOKEN=&lt;redacted&gt;" in table
    assert "short" not in table
    assert leaks(tmp_path) == []
    assert MARK not in " ".join(said)


def test_a_preflight(tmp_path, monkeypatch):
    crashed = CombinationResult(combination=Combination("GLOO"), status=Status.CRASHED, detail=f"{TOKEN} at {KEY}")
    monkeypatch.setattr(preflights, "run_all", lambda *args, **options: [crashed])
    path = tmp_path / "report" / "preflight.json"
    CliRunner().invoke(preflights.preflight, [f"--json={path}"], catch_exceptions=False)
    assert REDACTED in path.read_text()
    assert leaks(tmp_path) == []
