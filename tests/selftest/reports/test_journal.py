"""The journal survives what a run does not, and JSON comes back as it was written."""

from __future__ import annotations

import json
import math

import pytest

from glm5check.errors import ReportError
from glm5check.records import Measurement, Outcome
from glm5check.redaction import Redactor
from glm5check.reports import cleaning, journal, json_report
from glm5check.reports.model import SCHEMA, CaseOutcome
from tests.selftest.reports.examples import every_kind_of_measurement, make_case, make_finding, make_report

BEGIN = journal.Begin(
    program="glm5check 0", started="2026-11-29T02:00:00+00:00", command="pytest", setup={"ranks": "8"}
)


def written(tmp_path, *events):
    path = tmp_path / "deep" / journal.JOURNAL
    book = journal.Journal(path)
    for event in events:
        book.append(event)
    return path


def test_what_was_appended_is_on_disk_at_once(tmp_path):
    path = written(tmp_path, BEGIN, journal.Started(nodeid="a"), journal.Found(nodeid="a", finding=make_finding()))
    report = journal.build(journal.read(path))
    assert not report.ended
    assert report.interruption
    assert report.cases[0].outcome is CaseOutcome.UNFINISHED
    assert list(report.findings) == [make_finding()]


def test_a_line_cut_in_writing_is_left_out(tmp_path):
    path = written(tmp_path, BEGIN, journal.Started(nodeid="a"))
    path.write_bytes(path.read_bytes() + b'{"type":"ended","nodeid":"a","outc')
    assert journal.build(journal.read(path)).cases[0].outcome is CaseOutcome.UNFINISHED


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no beginning"),
        (b'{"type":"started","nodeid":"a"}\n', "no beginning"),
        (b"nonsense\n", "line 1 is not of a journal"),
        (b'{"type":"begin","schema":99,"program":"","started":"","command":"","setup":{}}\n', "schema 99"),
    ],
)
def test_what_is_no_journal_is_refused(tmp_path, content, message):
    path = tmp_path / journal.JOURNAL
    path.write_bytes(content)
    with pytest.raises(ReportError, match=message):
        journal.read(path)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="cannot be written"):
        journal.Journal(tmp_path / "file" / journal.JOURNAL)


def test_json_comes_back_as_it_was_written(tmp_path):
    report = make_report(
        make_case(findings=(make_finding(Outcome.FAILED, value=0.3, bound=0.1),), message="why", repeat="pytest"),
        make_case("b", CaseOutcome.KNOWN, measurements=every_kind_of_measurement()),
        setup={"faults": "x"},
        fingerprint={"version.vllm": "0.32.0"},
        problems=("one",),
    )
    path = tmp_path / json_report.FILE
    path.write_bytes(json_report.render(report))
    assert json_report.read(path) == report
    assert json.loads(path.read_text())["schema"] == SCHEMA


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 0}', '{"schema": 99}', '{"schema": 1, "cases": 3}'])
def test_what_is_no_report_is_refused(tmp_path, content):
    path = tmp_path / json_report.FILE
    path.write_text(content)
    with pytest.raises(ReportError):
        json_report.read(path)
    with pytest.raises(ReportError):
        json_report.read(tmp_path)


def test_numbers_that_json_cannot_hold_stay_in_the_text():
    clean = cleaning.finding(make_finding(got="nan nat", value=math.nan, bound=math.inf), Redactor({}))
    assert (clean.got, clean.value, clean.bound) == ("nan nat", None, None)


@pytest.mark.parametrize("samples", [(), (1.0, math.nan), (math.inf,)])
def test_a_measurement_without_numbers_is_refused(samples):
    with pytest.raises(ValueError, match="finite"):
        cleaning.measurement(Measurement(name="x", unit="s", samples=samples, higher_is_better=True), Redactor({}))


def test_long_and_unprintable_texts_are_cut_and_spelled_out():
    clean = cleaning.finding(make_finding(got="\ud800\x00" + "y" * 100_000), Redactor({}))
    assert len(clean.got) < 5_000
    assert clean.got.startswith("?\\x00y")
    assert "left out" in clean.got
