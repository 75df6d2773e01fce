"""Which test catches which seeded fault, by the matrix of `glm5check selfcheck`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, Final

from glm5check.reports.matrix import Detection, FaultCell, Matrix
from glm5check.reports.pictures.picture import Picture, short
from glm5check.reports.pictures.svg import GRID, INK, PAPER, SERIES, Canvas
from glm5check.reports.summary import shorten

CAUGHT: Final = "caught"
ANOTHER: Final = "caught another way"
ALSO: Final = "failed as well"
MISSED: Final = "missed"
FALSE_ALARM: Final = "false alarm"
NEEDS_GPU: Final = "left for a GPU"
NOT_RUN: Final = "not run"
_MARKS: Final = {
    CAUGHT: ("s", SERIES[2], SERIES[2]),
    ALSO: (".", SERIES[2], SERIES[2]),
    ANOTHER: ("D", SERIES[0], SERIES[0]),
    MISSED: ("X", SERIES[3], SERIES[3]),
    FALSE_ALARM: ("^", SERIES[4], SERIES[4]),
    NEEDS_GPU: ("o", PAPER, INK),
    NOT_RUN: ("+", INK, INK),
}
"""Shape, colour and edge: no result is told by its colour alone."""
_EXPECTED: Final = {
    Detection.CAUGHT: CAUGHT,
    Detection.CAUGHT_BY_ANOTHER: MISSED,
    Detection.MISSED: MISSED,
    Detection.NEEDS_GPU: NEEDS_GPU,
    Detection.NOT_RUN: NOT_RUN,
}
"""What the test that is named for a fault did."""
_HEALTHY: Final = "healthy"
_LONGEST_LABEL: Final = 46
"""Characters of a test's name: there is more room above than beside."""
_ROW, _COLUMN = 0.2, 0.165
"""Inches: a mark, and a name that can be read. Sixty tests still fit into the page's width."""
_CHARACTER: Final = 0.07
"""Inches of a character of an axis label."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """One mark. Rows of one `group` stay together; an empty `test` makes a row without a mark."""

    group: str
    row: str
    test: str
    result: str


def of_matrix(matrix: Matrix) -> Picture | None:
    """Seeded faults by test, and healthy servers below them; only tests that are named for a fault or raised an alarm.

    None where there is nothing to mark.
    """
    cells = [cell for fault in matrix.faults for cell in _of_fault(fault)]
    shown = {cell.test for cell in cells if cell.result != ALSO}
    alarms = [
        _Cell(_HEALTHY, run.variant, test, FALSE_ALARM)
        for run in matrix.false_alarms
        for test in dict.fromkeys(map(_whole, run.failed))
    ]
    silent = len(matrix.healthy) - len(matrix.false_alarms)
    if silent:
        alarms.append(_Cell(_HEALTHY, f"{silent} healthy runs", "", ""))
    kept = [cell for cell in cells if cell.result != ALSO or cell.test in shown]
    return _drawn([*kept, *alarms])


def _of_fault(fault: FaultCell) -> Iterator[_Cell]:
    expected = _whole(fault.expected)
    failed = dict.fromkeys(map(_whole, fault.failed))
    by_another = fault.outcome is Detection.CAUGHT_BY_ANOTHER
    in_other_words = by_another and expected in failed
    yield _Cell(fault.seeded_in, fault.name, expected, ANOTHER if in_other_words else _EXPECTED[fault.outcome])
    for test in failed:
        if test != expected:
            yield _Cell(fault.seeded_in, fault.name, test, ANOTHER if by_another and not in_other_words else ALSO)


def _whole(nodeid: str) -> str:
    """The test function of one of its parametrised tests."""
    return nodeid.partition("[")[0]


def _label(nodeid: str) -> str:
    """`decode: mean_kl_on_random_tokens`, with the directory below tests/."""
    path, _, names = nodeid.partition("::")
    parts = PurePosixPath(path).parent.parts
    name = names.rpartition("::")[2].removeprefix("test_") or path
    return shorten(f"{'/'.join(parts[1:])}: {name}" if parts[1:] else name, _LONGEST_LABEL)


def _drawn(cells: Sequence[_Cell]) -> Picture | None:
    if not any(cell.test for cell in cells):
        return None
    groups = list(dict.fromkeys(cell.group for cell in cells))
    named = dict.fromkeys((cell.group, cell.row) for cell in cells)
    rows = sorted(named, key=lambda row: groups.index(row[0]))
    tests = sorted({cell.test for cell in cells if cell.test})
    width = 1.0 + _CHARACTER * max(len(short(row)) for _, row in rows) + _COLUMN * len(tests)
    height = 1.0 + 0.9 * _CHARACTER * max(len(_label(test)) for test in tests) + _ROW * len(rows)
    with Canvas("detection", height, width) as canvas:
        axes = canvas.axes
        for result, (shape, face, edge) in _MARKS.items():
            marked = [cell for cell in cells if cell.result == result]
            if marked:
                across = [tests.index(cell.test) for cell in marked]
                down = [rows.index((cell.group, cell.row)) for cell in marked]
                axes.plot(across, down, shape, mfc=face, mec=edge, ms=8, label=result)
        _label_axes(axes, rows, tests)
        canvas.figure.legend(loc="outside upper left", ncols=4)
    return Picture(
        key="detection",
        title="Seeded faults, and which test caught them",
        caption="An empty place: that test did not fail with that fault, or was not run with it. "
        "Shapes say the same as colours.",
        svg=canvas.svg,
        columns=("seeded into", "fault", "test", "result"),
        rows=tuple((cell.group, cell.row, cell.test, cell.result) for cell in cells if cell.result != ALSO),
    )


def _label_axes(axes: Any, rows: Sequence[tuple[str, str]], tests: Sequence[str]) -> None:
    """Tests above, faults to the left, and to the right the name of each group of faults, with lines between groups."""
    axes.xaxis.tick_top()
    names = [_label(test) for test in tests]
    axes.set_xticks(range(len(tests)), names, rotation=60, ha="left", rotation_mode="anchor", fontsize="small")
    axes.set_yticks(range(len(rows)), [short(row) for _, row in rows], fontsize="small")
    axes.set_xlim(-0.6, len(tests) - 0.4)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(color=GRID)
    start = 0
    for group, members in groupby(group for group, _ in rows):
        end = start + len(list(members))
        axes.text(len(tests), (start + end - 1) / 2, group, ha="left", va="center", fontsize="small")
        if end < len(rows):
            axes.axhline(end - 0.5, color=INK, linewidth=0.8)
        start = end
