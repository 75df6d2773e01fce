"""All of it: faults and healthy servers, some at a time, kept as they end, summed up as a matrix."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from glm5check.errors import OptionError
from glm5check.fingerprint import git_commit, versions
from glm5check.reports import matrix as matrices
from glm5check.reports import writing
from glm5check.reports.matrix import Detection, FaultCell, HealthyRun, Matrix, Verdict
from glm5check.selfcheck import healthy, registry, suite
from glm5check.selfcheck.cells import Cells
from glm5check.selfcheck.healthy import Variant
from glm5check.selfcheck.judging import unrun
from glm5check.selfcheck.runs import Runs
from glm5check.selfcheck.seeded import SeededFault

LOCK: Final = "lock"
Job: TypeAlias = Callable[[], FaultCell | HealthyRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What to run, where to keep it, and how many at a time; `say` gets a line a cell.

    A cell of this very suite that is there already is not made again, but for `again`. The matrix shows cells of other
    campaigns in `out` too; each names the commit that it was made with. Faults that need a GPU are listed and not run:
    the embedded model is served without what they are in.
    """

    faults: Sequence[SeededFault]
    variants: Sequence[Variant]
    out: Path
    jobs: int
    again: bool
    say: Callable[[str], None]

    def run(self) -> Matrix:
        """Run what is not done. On Ctrl-C everything that runs is ended, and what is done stays.

        Raises OptionError while another campaign works in `out`.
        """
        with _alone_in(self.out):
            return self._run()

    def _run(self) -> Matrix:
        root = suite.checkout()
        runs = Runs(root)
        cells = Cells(self.out, runs, suite=suite.digest(root), commit=git_commit())
        started = datetime.now(UTC).isoformat(timespec="seconds")
        todo = self._todo(cells)
        self.say(f"{len(todo)} of {len(self.faults) + len(self.variants)} runs to do, {self.jobs} at a time")
        self._do(todo, runs, lambda: self._write(cells, started))
        return self._write(cells, started)

    def _todo(self, cells: Cells) -> list[Job]:
        todo: list[Job] = []
        for fault in self.faults:
            if not fault.needs_gpu and (self.again or not cells.is_done(fault)):
                todo.append(partial(cells.fault, fault))
        for variant in self.variants:
            if self.again or not cells.is_done(variant):
                todo.append(partial(cells.healthy, variant))
        return todo

    def _do(self, todo: Sequence[Job], runs: Runs, keep: Callable[[], object]) -> None:
        with ThreadPoolExecutor(self.jobs) as pool:
            pending = {pool.submit(job) for job in todo}
            try:
                while pending:
                    ended, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in ended:
                        self.say(f"[{len(todo) - len(pending):3d}/{len(todo)}] {line_of(future.result())}")
                    keep()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                runs.stop()
                raise

    def _write(self, cells: Cells, started: str) -> Matrix:
        matrix = self._matrix(cells, started)
        writing.replace(self.out / matrices.FILE, matrices.render(matrix))
        return matrix

    def _matrix(self, cells: Cells, started: str) -> Matrix:
        faults = tuple(self._cell(cells, fault) for fault in registry.ALL)
        variants = healthy.variants(max(healthy.RUNS, len(self.variants)))
        runs = tuple(run for variant in variants if (run := cells.kept_healthy(variant)) is not None)
        return Matrix(
            commit=cells.commit,
            started=started,
            seconds=sum(cell.seconds for cell in faults) + sum(run.seconds for run in runs),
            versions=versions(),
            healthy=runs,
            faults=faults,
        )

    @staticmethod
    def _cell(cells: Cells, fault: SeededFault) -> FaultCell:
        if fault.needs_gpu:
            return unrun(fault, Detection.NEEDS_GPU, "the legs of .ci/gpu-run seed it")
        return cells.kept_fault(fault) or unrun(fault, Detection.NOT_RUN, "was not asked for")


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """The kernel lets go of the lock whenever this process ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OptionError(
                "another selfcheck works here", where=str(directory), do="wait for it, or give another --out"
            ) from None
        yield


def line_of(cell: FaultCell | HealthyRun) -> str:
    """A finished cell on one line."""
    if isinstance(cell, FaultCell):
        why = f" ({cell.why})" if cell.why else ""
        return f"{cell.name}: {cell.outcome}{why}, {cell.seconds:.0f} s"
    alarms = f": {', '.join(cell.failed)}" if cell.failed else ""
    return f"healthy, {cell.variant}: {cell.verdict}{alarms}, {cell.passed} passed, {cell.seconds:.0f} s"


def exit_code(matrix: Matrix, names: Sequence[str], variants: Sequence[str]) -> int:
    """Of these faults and variants: 1 if one escaped its test or was a false alarm, else 2 if one says nothing."""
    outcomes = {cell.outcome for cell in matrix.faults if cell.name in names}
    verdicts = {run.verdict for run in matrix.healthy if run.variant in variants}
    if outcomes & {Detection.MISSED, Detection.CAUGHT_BY_ANOTHER} or Verdict.FAILED in verdicts:
        return 1
    is_open = Detection.NOT_RUN in outcomes or Verdict.INCONCLUSIVE in verdicts
    return 2 if is_open else 0
