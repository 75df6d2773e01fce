"""The score of a matrix, as Markdown between two comments of a page; never written by hand."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path
from typing import Final

from glm5check.errors import OptionError
from glm5check.reports.detection import WORDS, sentence
from glm5check.reports.matrix import Detection, Matrix
from glm5check.selfcheck.seeded import SELFTESTS, Place

BEGIN: Final = "<!-- score: written by `glm5check selfcheck --write-score`, not by hand -->"
END: Final = "<!-- end of score -->"
_WIDTH: Final = 120


def render(matrix: Matrix) -> str:
    """The block, both comments included."""
    return "\n".join([BEGIN, "", _sentences(matrix), "", *_table(matrix), *_open(matrix), "", END])


def write(page: Path, matrix: Matrix) -> None:
    """Put the block into the page where an earlier one is. Raises OptionError if the page has no place for it."""
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(block_of(text, page), render(matrix)), encoding="utf-8")


def block_of(text: str, page: Path) -> str:
    """The block that the page has now, both comments included."""
    start = text.find(BEGIN)
    end = text.find(END, start)
    if start < 0 or end < 0:
        raise OptionError("the page has no place for a score", where=str(page), do=f"put {BEGIN} and {END} into it")
    return text[start : end + len(END)]


def _sentences(matrix: Matrix) -> str:
    carried = [cell for cell in matrix.of(Detection.CAUGHT) if cell.expected.startswith(SELFTESTS)]
    text = (
        f"{sentence(matrix)} {len(carried)} of those caught are carried by self-tests. All of it takes "
        f"{matrix.seconds / 60:.0f} minutes: `tox run -e faults`."
    )
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False)


def _table(matrix: Matrix) -> list[str]:
    shown = [outcome for outcome in WORDS if outcome is Detection.CAUGHT or matrix.of(outcome)]
    lines = [
        f"| seeded into | faults | {' | '.join(WORDS[outcome] for outcome in shown)} |",
        f"|---|--:|{'--:|' * len(shown)}",
    ]
    for place in Place:
        cells = [cell for cell in matrix.faults if cell.seeded_in == place]
        counts = Counter(cell.outcome for cell in cells)
        if cells:
            lines.append(f"| {place} | {len(cells)} | {' | '.join(str(counts[outcome]) for outcome in shown)} |")
    return lines


def _open(matrix: Matrix) -> list[str]:
    """A line for each fault that is not caught by its test, with why, and for each false alarm."""
    lines = [
        f"- `{cell.name}`: {WORDS[cell.outcome]}{f' ({cell.why})' if cell.why else ''}"
        for cell in matrix.faults
        if cell.outcome is not Detection.CAUGHT
    ]
    lines += [f"- false alarm on {run.variant}: {', '.join(run.failed)}" for run in matrix.false_alarms]
    return ["", *lines] if lines else []
