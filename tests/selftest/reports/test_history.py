"""Nights in a directory: kept once, read in order, and their trends with a band of noise."""

from __future__ import annotations

import pytest

from glm5check.errors import ReportError
from glm5check.reports import history, html_report, json_report
from tests.selftest.reports.examples import make_case, make_measurement, make_report


def night(day, *speeds, **fingerprint):
    measured = make_measurement("throughput.decode", "tok/s", *speeds, higher_is_better=True, context="512")
    return make_report(
        make_case("tests/throughput/a.py::b", measurements=(measured,)),
        started=f"2026-11-{day:02d}T02:00:00+00:00",
        fingerprint={"version.vllm": "0.32.0", "process.pid": str(day), **fingerprint},
    )


NIGHTS = [night(day, 56.0 + day % 3, 57.0 + day % 3) for day in range(1, 8)]


def test_a_night_is_kept_once_and_read_in_order(tmp_path):
    for one in (NIGHTS[2], NIGHTS[0], NIGHTS[1], NIGHTS[0]):
        history.append(one, tmp_path)
    assert history.load_reports(tmp_path) == NIGHTS[:3]


def test_a_file_and_directories_of_runs_are_read_too(tmp_path):
    for number, one in enumerate(NIGHTS[:2]):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / json_report.FILE).write_bytes(json_report.render(one))
    assert history.load_reports(tmp_path) == NIGHTS[:2]
    assert history.load_reports(tmp_path / "1" / json_report.FILE) == NIGHTS[1:2]


def test_what_is_no_history_is_refused(tmp_path):
    with pytest.raises(ReportError, match="no report"):
        history.load_reports(tmp_path)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ReportError, match="no report"):
        history.load_reports(tmp_path)


def test_a_trend_has_a_point_a_night_and_the_band_of_those_before():
    (trend,) = history.trends([*NIGHTS, night(9, 40.0)])
    assert len(trend.points) == 8
    assert trend.points[-1].median == 40.0
    assert trend.band is not None
    assert 56 <= trend.band.low < trend.band.high <= 59


def test_a_few_nights_have_no_band():
    (trend,) = history.trends(NIGHTS[:5])
    assert trend.band is None
    assert history.trends([]) == []


def test_what_changed_between_nights_is_named_without_what_always_differs():
    before, after = night(1, 56.0), night(2, 57.0, **{"version.vllm": "0.33.0", "environment.NCCL_PROTO": "LL"})
    assert history.changed(before.fingerprint, after.fingerprint) == (
        "environment.NCCL_PROTO: (missing) -> LL",
        "version.vllm: 0.32.0 -> 0.33.0",
    )


def test_the_page_shows_the_trend_and_whether_the_night_is_outside_the_band():
    tonight = night(9, 40.0, **{"version.vllm": "0.33.0"})
    page = html_report.render(tonight, [*NIGHTS, tonight])
    assert "outside the band of the nights before and worse" in page
    assert "version.vllm: 0.32.0 -&gt; 0.33.0" in page
    assert "Trends" not in html_report.render(tonight)


def test_only_earlier_nights_come_before_this_one():
    assert history.with_this(NIGHTS[3], NIGHTS) == NIGHTS[:4]
