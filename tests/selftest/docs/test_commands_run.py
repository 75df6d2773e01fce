"""The documented commands that need no server come to a verdict, on our data in place of the reader's."""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner

from fixtures import DATA
from fixtures.options import EMBEDDED
from glm5check.cli import cli
from glm5check.reports import history, json_report
from tests.selftest.docs.commands import ROOT, commands_in, documents
from tests.selftest.reports.examples import make_case, make_measurement, make_report

NOT_TO_RUN = re.compile(r"\b(FILES?|DIRECTORY|BEFORE|AFTER|report DIR)\b|--help")
"""Signatures, and the report of a selfcheck: `tests/selftest/reports/test_matrix.py` has that."""
FOUND = sorted(
    {
        shlex.join(shlex.split(command, comments=True))
        for path in documents()
        for command in commands_in(path.read_text(encoding="utf-8"))
        if re.match(r"glm5check (audit|trace|report|compare) ", command) and not NOT_TO_RUN.search(command)
    }
)
RECORDING = DATA / "graphs" / "eager"
STANDING_FOR = {"/models/GLM-5": EMBEDDED, "traces/": RECORDING, "DIR": RECORDING}


def ours(word: str) -> str:
    """What stands for a path of the reader's."""
    if word.endswith(".gguf"):
        return str(next(EMBEDDED.glob("*00001-of*.gguf")))
    if word.startswith("fixtures/"):
        return str(ROOT / word)
    return str(STANDING_FOR.get(word, word))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """In a directory with a report of tonight, and of a night before."""
    speed = make_measurement("decode.x", "tok/s", 57.0, 58.0, higher_is_better=True)
    tonight, before = (
        make_report(make_case(measurements=(speed,)), started=f"2026-11-{day}T02:00:00+00:00") for day in (29, 28)
    )
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / json_report.FILE).write_bytes(json_report.render(tonight))
    history.append(before, tmp_path / "nights")
    monkeypatch.chdir(tmp_path)
    return lambda words: CliRunner().invoke(cli, words)


def test_there_are_some_of_each():
    assert {command.split()[1] for command in FOUND} == {"audit", "trace", "report", "compare"}


@pytest.mark.parametrize("command", FOUND)
def test_a_command_comes_to_a_verdict(command, run):
    result = run([ours(word) for word in shlex.split(command)[1:]])
    assert isinstance(result.exception, SystemExit) or result.exception is None, result.exception
    assert result.exit_code in (0, 1, 2)
    assert result.output
    assert "Usage:" not in result.output
