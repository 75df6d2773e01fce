"""The page: a parser opens it and reads the verdict, the failures and the plots; nothing in it is from outside."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from glm5check.records import Outcome
from glm5check.reports import html_report, markdown_report
from glm5check.reports.model import CaseOutcome
from glm5check.reports.pictures import draw
from glm5check.serving.workloads import SINGLE, ladder_name
from tests.selftest.reports.examples import (
    every_kind_of_measurement,
    make_case,
    make_finding,
    make_measurement,
    make_report,
)

VOID = {"meta", "br", "hr", "img", "input", "link"}
EVIL = "<script>alert(1)</script> & \"'`*|$x^2$ 你好 \x00\x1b[31m"


class Page(HTMLParser):
    """What a reader sees, by element id, and every tag and attribute."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[tuple[str, str]] = []
        self.texts: dict[str, str] = {}
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.stack.append((tag, values.get("id", "")))

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.stack.pop()[0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if not any(tag == "style" for tag, _ in self.stack):
            self.text += data
        for _, name in self.stack:
            if name:
                self.texts[name] = self.texts.get(name, "") + data


def page_of(report, nights=()) -> Page:
    page = Page(html_report.render(report, nights))
    assert page.stack == []
    return page


def faulty():
    failed = make_finding(Outcome.FAILED, got=EVIL, want="Paris", where={"prompt": EVIL}, cause="the template")
    return make_report(
        make_case("tests/decode/a.py::test_x[<b>]", CaseOutcome.FAILED, findings=(failed,), repeat="pytest 'a[<b>]'"),
        make_case("tests/context/a.py::test_y", CaseOutcome.INCONCLUSIVE, message="the limit is too low"),
        setup={"model": "<i>glm</i>.gguf"},
    )


def test_a_healthy_run_reads_as_passed():
    page = page_of(make_report(make_case(findings=(make_finding(),)), fingerprint={"version.vllm": "0.32.0"}))
    assert page.texts["verdict"] == "Passed"
    assert "This deployment is right" in page.text
    assert "0.32.0" in page.text
    assert "What failed" not in page.text


def test_a_faulty_run_says_what_why_and_what_next():
    page = page_of(faulty())
    assert page.texts["verdict"] == "Failed"
    for wanted in ("What failed", "Paris", "the template", "pytest 'a[<b>]'", "the limit is too low"):
        assert wanted in page.text


def test_an_interrupted_run_says_so():
    page = page_of(make_report(make_case(), ended=False, interruption="the process was killed or crashed"))
    assert page.texts["verdict"] == "Interrupted"
    assert "the process was killed" in page.text


def test_without_a_server_the_missing_fingerprint_is_said():
    assert "No fingerprint" in page_of(make_report(make_case())).text


def test_model_output_stays_text():
    page = page_of(faulty())
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert "<i>glm</i>.gguf" in page.text
    markdown = markdown_report.render(faulty())
    assert "<script" not in markdown
    assert "<b>" not in markdown.replace("    pytest 'a[<b>]'", "")


def test_many_failures_alike_are_shown_once():
    rows = tuple(
        make_finding(Outcome.FAILED, got=f"{layer} rows", cause="the kernel", where={"layer": f"L{layer}"})
        for layer in range(40)
    )
    report = make_report(make_case(outcome=CaseOutcome.FAILED, findings=rows))
    page = page_of(report)
    assert page.text.count("the kernel") == 1
    assert "layer=L3" in page.text
    assert "and 32 more alike" in page.text
    assert markdown_report.render(report).count("the kernel") == 1


def test_nothing_comes_from_outside():
    page = page_of(make_report(make_case(measurements=every_kind_of_measurement())))
    assert not {"script", "link", "img", "iframe", "object", "image"} & set(page.tags)
    for name, value in page.attributes:
        if name in ("src", "href", "xlink:href"):
            assert value.startswith("#")
        if name != "xmlns" and not name.startswith("xmlns:"):
            assert "http" not in value
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_every_picture_is_there_when_its_data_is():
    page = page_of(make_report(make_case(measurements=every_kind_of_measurement())))
    for key in ("step", "all-reduce", "speed", "nll", "ladder"):
        assert page.texts[key]
    assert page.tags.count("svg") == page.tags.count("figure") == 5
    for text in ("all-reduce net", "MoE", "1,110", "rank 1", "english"):
        assert text in page.text


@pytest.mark.parametrize(
    "one", every_kind_of_measurement(), ids=lambda one: f"{one.name}-{'-'.join(one.where.values())}"
)
def test_no_picture_without_its_data(one):
    """A single measurement draws at most one picture, and never fails."""
    assert len(draw([one])) <= 1
    assert draw([]) == []


def test_floors_and_the_ladder_are_read_from_what_throughput_says():
    floor = make_finding(check="throughput.floor", value=57.5, bound=54.25, unit="tok/s", where={"measure": SINGLE})
    rungs = [make_measurement(ladder_name(count), "tok/s", 50.0 * count) for count in (1, 16)]
    speed, ladder = draw([make_measurement(SINGLE, "tok/s", 57.0, 58.0), *rungs], [floor])
    assert dict(zip(speed.columns, speed.rows[0], strict=True))["floor"] == "54.25"
    assert [row[1] for row in ladder.rows] == ["1", "16"]


def test_ids_are_unique_where_something_points_at_them():
    page = page_of(make_report(make_case(measurements=every_kind_of_measurement())))
    ids = [value for name, value in page.attributes if name == "id"]
    targets = {value[1:] for name, value in page.attributes if name == "href"}
    assert targets <= set(ids)
    assert len(ids) == len(set(ids))


def test_names_from_outside_cannot_break_a_picture():
    evil = [replace(one, where=dict.fromkeys(one.where, EVIL)) for one in every_kind_of_measurement()]
    kept = [one for one in evil if "window" not in one.where]
    for picture in draw(kept):
        assert "<script" not in picture.svg
