"""matrix.html: the page of a detection matrix, self-contained as report.html is."""

from __future__ import annotations

from typing import Final

from glm5check.reports.detection import WORDS, sentence, verdict
from glm5check.reports.matrix import Detection, FaultCell, Matrix
from glm5check.reports.page import environment
from glm5check.reports.pictures.detection import of_matrix
from glm5check.reports.summary import Verdict

FILE: Final = "matrix.html"
_HEADLINES: Final = {
    Verdict.GOOD: "Catches what it should",
    Verdict.BAD: "Something is not right",
    Verdict.OPEN: "Not decided",
}


def render(matrix: Matrix) -> str:
    """The page. What is not ours is escaped, as in `html_report`."""
    return (
        environment()
        .get_template("matrix.html.jinja")
        .render(
            matrix=matrix,
            verdict=verdict(matrix),
            word=_HEADLINES[verdict(matrix)],
            sentence=sentence(matrix),
            escaped=matrix.of(Detection.MISSED, Detection.CAUGHT_BY_ANOTHER),
            picture=of_matrix(matrix),
            faults=[_row(fault) for fault in matrix.faults],
            words=WORDS,
        )
    )


def _row(fault: FaultCell) -> tuple[str, ...]:
    return (
        fault.name,
        fault.fault_class,
        fault.seeded_in,
        fault.stands_for,
        fault.expected,
        WORDS[fault.outcome] + (f": {fault.why}" if fault.why else ""),
        fault.message,
        f"{fault.seconds:.0f}",
    )
