"""The score on README is the one of the committed matrix, and says what is open."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fixtures import DATA
from glm5check.errors import OptionError, ReportError
from glm5check.reports import matrix as matrices
from glm5check.reports.matrix import Detection, FaultCell, HealthyRun, Matrix, Verdict
from glm5check.selfcheck import registry, score

ROOT = Path(__file__).parents[3]
COMMITTED = DATA / "selfcheck" / matrices.FILE


@pytest.fixture
def cell():
    def make(name, outcome, **changes):
        given = {"fault_class": "files", "stands_for": "", "seeded_in": "config", "needs_gpu": False, "expected": "x"}
        return FaultCell(name=name, outcome=outcome, **(given | changes))

    return make


@pytest.fixture
def matrix(cell):
    return Matrix(
        started="2026-11-29T18:00:00+00:00",
        seconds=3000,
        faults=(
            cell("one", Detection.CAUGHT, commit="a" * 40),
            cell("two", Detection.CAUGHT, expected="tests/selftest/x.py::y", commit="b" * 40),
            cell("three", Detection.MISSED, why="the named test passed"),
            cell("four", Detection.NEEDS_GPU, seeded_in="server"),
        ),
        healthy=(HealthyRun(variant="bfloat16", verdict=Verdict.FAILED, failed=("t::u",)),),
    )


def test_readme_has_the_score_of_the_committed_matrix():
    page = ROOT / "README.md"
    assert score.block_of(page.read_text(encoding="utf-8"), page) == score.render(matrices.read(COMMITTED))


def test_the_committed_matrix_has_the_rows_of_the_registry():
    """Run `glm5check selfcheck` for the faults that are new, copy its matrix.json there, and write the score again."""
    rows = {cell.name: (cell.expected, cell.says) for cell in matrices.read(COMMITTED).faults}
    assert rows == {fault.name: (fault.caught_by, fault.says) for fault in registry.ALL}


def test_the_committed_matrix_names_no_machine():
    assert not {row.name for row in matrices.read(COMMITTED).faults if "=/" in row.message}


def test_what_is_open_is_said(matrix):
    text = score.render(matrix).replace("\n", " ")
    assert "2 of 3 seeded faults were caught" in text
    assert "1 of 1 runs on healthy servers raised a false alarm" in text
    assert "1 of those caught are carried by self-tests" in text
    assert "takes 50 minutes" in text
    assert "| config | 3 | 2 | 1 | 0 |" in text
    assert "- `three`: missed (the named test passed)" in text
    assert "- `four`: left for a GPU" in text
    assert "- false alarm on bfloat16: t::u" in text


def test_writing_it_twice_changes_nothing(matrix, tmp_path):
    page = tmp_path / "README.md"
    page.write_text(f"# A page\n\n{score.BEGIN}\nold\n{score.END}\n\nMore.\n", encoding="utf-8")
    score.write(page, matrix)
    once = page.read_text(encoding="utf-8")
    score.write(page, matrix)
    assert page.read_text(encoding="utf-8") == once
    assert once.startswith("# A page\n\n<!-- score")
    assert once.endswith("<!-- end of score -->\n\nMore.\n")
    assert "old" not in once


def test_a_page_without_a_place_is_refused(matrix, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n", encoding="utf-8")
    with pytest.raises(OptionError, match="no place for a score"):
        score.write(page, matrix)


def test_a_matrix_there_and_back(matrix, tmp_path):
    path = tmp_path / matrices.FILE
    path.write_bytes(matrices.render(matrix))
    assert matrices.read(path) == matrix
    assert b'"class": "files"' in path.read_bytes()


@pytest.mark.parametrize(
    ("text", "what"), [("{}", "no matrix"), ('{"schema": 99}', "has schema 99"), ("nonsense", "no matrix")]
)
def test_what_is_no_matrix_is_refused(text, what, tmp_path):
    path = tmp_path / matrices.FILE
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ReportError, match=what):
        matrices.read(path)
    with pytest.raises(ReportError, match="no matrix to read"):
        matrices.read(tmp_path / "missing.json")


def test_versions_are_in_it():
    assert msgspec.to_builtins(matrices.read(COMMITTED))["versions"]["python"]
