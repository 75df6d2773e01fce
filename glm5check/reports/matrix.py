"""matrix.json: which seeded faults the suite caught, and on which healthy servers it cried wolf.

Written by `glm5check selfcheck`, drawn by the HTML report, summed up in README.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from glm5check.reports import versioned

SCHEMA: Final = 1
"""Version of matrix.json: raised when a field changes its meaning or goes, not when one is added."""
FILE: Final = "matrix.json"
MAX_BYTES: Final = 16 << 20


class Detection(StrEnum):
    """What became of one seeded fault."""

    CAUGHT = "caught"
    """The test that is named for it failed, in the words that name its kind."""
    CAUGHT_BY_ANOTHER = "caught_by_another"
    """Another test failed, or the named one in other words."""
    MISSED = "missed"
    NEEDS_GPU = "needs_gpu"
    NOT_RUN = "not_run"


class Verdict(StrEnum):
    """How a run on a healthy server ended."""

    PASSED = "passed"
    FAILED = "failed"
    """A false alarm."""
    INCONCLUSIVE = "inconclusive"
    """Nothing failed, but nothing passed either, or the run did not end."""


class FaultCell(msgspec.Struct, frozen=True, kw_only=True, rename={"fault_class": "class"}):
    """One seeded fault and what the tests said to it.

    `name` is the fault's, `fault_class` (`class` in the file) the kind it belongs to, `stands_for` the kind of real
    report, `seeded_in` one of server, checkpoint, config, evidence, collective, load. `expected` is the node id of the
    test that must fail with it and `says` the words it must say; `failed` are the node ids that did fail and `message`
    the beginning of what the expected one said. `why` explains the outcome where it needs that. `commit` is of the tree
    that the fault was seeded into: cells of a matrix may be of several.
    """

    name: str
    fault_class: str
    stands_for: str
    seeded_in: str
    needs_gpu: bool
    expected: str
    outcome: Detection
    why: str = ""
    failed: tuple[str, ...] = ()
    says: str = ""
    message: str = ""
    seconds: float = 0.0
    commit: str = ""


class HealthyRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run without a fault: `failed` are the node ids of its false alarms; the counts are of tests."""

    variant: str
    verdict: Verdict
    failed: tuple[str, ...] = ()
    passed: int = 0
    inconclusive: int = 0
    seconds: float = 0.0
    commit: str = ""


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """One run of `glm5check selfcheck`. `commit` is of the tree that was tested, `started` an ISO time in UTC."""

    schema: int = SCHEMA
    commit: str = ""
    started: str = ""
    seconds: float = 0.0
    versions: Mapping[str, str] = {}
    healthy: tuple[HealthyRun, ...] = ()
    faults: tuple[FaultCell, ...] = ()

    def of(self, *outcomes: Detection) -> tuple[FaultCell, ...]:
        """The faults of these outcomes, in the order of the matrix."""
        return tuple(fault for fault in self.faults if fault.outcome in outcomes)

    @property
    def false_alarms(self) -> tuple[HealthyRun, ...]:
        return tuple(run for run in self.healthy if run.verdict is Verdict.FAILED)


def render(matrix: Matrix) -> bytes:
    """Indented UTF-8, so that two can be compared with diff."""
    return versioned.render(matrix)


def read(path: Path) -> Matrix:
    """Raises ReportError if the file cannot be read, is no matrix, or has a schema that this program does not know."""
    return versioned.read(
        path,
        Matrix,
        schema=SCHEMA,
        what="matrix",
        largest=(MAX_BYTES, f"{MAX_BYTES >> 20} MiB"),
        hint="write one: glm5check selfcheck",
        other="",
    )
