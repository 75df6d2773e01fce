"""The approved texts belong to the cases, one for one, and tell all that a finding says."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from glm5check.records import Finding, Outcome
from tests.selftest.approved import HERE, approved, told

MODULES = sorted(HERE.glob("*/test_findings*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HERE)))
def test_every_case_has_its_text_and_every_text_its_case(path: Path) -> None:
    cases = importlib.import_module(f"tests.selftest.{path.parent.name}.{path.stem}").CASES
    assert list(approved(str(path))) == list(cases)


def test_a_finding_is_told_whole() -> None:
    finding = Finding(
        check="a.b",
        outcome=Outcome.FAILED,
        got="2 \u4e2d",
        want="1",
        where={"rank": "0"},
        cause="c",
        repeat="pytest",
        value=2 / 3,
        bound=1.0,
        unit="s",
    )
    assert told([finding, Finding(check="a.b", outcome=Outcome.PASSED, got="1", want="1")]).splitlines() == [
        "FAILED a.b",
        "    got: 2 \\u4e2d",
        "    want: 1",
        "    cause: c",
        "    repeat: pytest",
        "    value: 0.66667",
        "    bound: 1",
        "    unit: s",
        "    where rank: 0",
        "PASSED a.b",
        "    got: 1",
        "    want: 1",
    ]


def test_a_module_without_texts_has_none(tmp_path: Path) -> None:
    assert approved(str(tmp_path / "test_findings.py")) == {}
