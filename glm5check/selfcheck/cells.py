"""One cell of the matrix: a fault seeded and judged, or a healthy server; and the files that finished ones are kept in.

A cell is one JSON file, written when it is done, so that whatever ends a campaign leaves the others.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import msgspec

from glm5check.errors import Glm5CheckError
from glm5check.reports import writing
from glm5check.reports.matrix import Detection, FaultCell, HealthyRun, Verdict
from glm5check.selfcheck.healthy import Variant
from glm5check.selfcheck.judging import judge_fault, judge_healthy, unrun
from glm5check.selfcheck.runs import Runs
from glm5check.selfcheck.seeded import Place, SeededFault, Workspace

LIMIT_S: Final = {Place.SERVER: 600.0, Place.LOAD: 420.0}
OTHER_LIMIT_S: Final = 240.0
"""Seconds for a run that starts no server and measures no speed; it takes a few."""
HEALTHY_LIMIT_S: Final = 600.0
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1"}


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A finished cell, with the digest of the suite that it was made with."""

    suite: str
    fault: FaultCell | None = None
    healthy: HealthyRun | None = None


class Cells:
    """The finished cells in a directory, and the making of others. `suite` and `commit` say what is tested."""

    def __init__(self, directory: Path, runs: Runs, *, suite: str, commit: str) -> None:
        self.directory, self.runs, self.suite, self.commit = directory, runs, suite, commit

    def fault(self, fault: SeededFault) -> FaultCell:
        """Seed the fault, run its tests, judge and keep what they said."""
        workspace = Workspace(self.runs.root, self._empty("work", fault.name))
        try:
            with fault.seed(workspace) as options:
                ended = self.runs.run(
                    [*options, *fault.tests],
                    self._empty("runs", fault.name),
                    limit_s=LIMIT_S.get(fault.seeded_in, OTHER_LIMIT_S),
                    environment=ONE_THREAD,
                )
            cell = judge_fault(fault, ended, self.commit, copies=workspace.directory)
        except (Glm5CheckError, OSError) as error:
            cell = unrun(fault, Detection.NOT_RUN, f"it could not be seeded: {error}", self.commit)
        finally:
            shutil.rmtree(workspace.directory, ignore_errors=True)
        self._keep(fault.name, Kept(suite=self.suite, fault=cell))
        return cell

    def healthy(self, variant: Variant) -> HealthyRun:
        """Run the tests on a healthy server, judge and keep what they said."""
        directory = self._empty("runs", _slug(variant.name))
        ended = self.runs.run(variant.arguments, directory, limit_s=HEALTHY_LIMIT_S, environment=variant.environment)
        run = judge_healthy(variant.name, ended, self.commit)
        self._keep(_slug(variant.name), Kept(suite=self.suite, healthy=run))
        return run

    def kept_fault(self, fault: SeededFault) -> FaultCell | None:
        """The cell of a fault that was made last, with whatever version of the suite."""
        kept = self._kept(fault.name)
        return kept.fault if kept else None

    def kept_healthy(self, variant: Variant) -> HealthyRun | None:
        """The same of a healthy server."""
        kept = self._kept(_slug(variant.name))
        return kept.healthy if kept else None

    def is_done(self, what: SeededFault | Variant) -> bool:
        """Whether there is a cell of this very suite that says something."""
        kept = self._kept(what.name if isinstance(what, SeededFault) else _slug(what.name))
        if kept is None or kept.suite != self.suite:
            return False
        if kept.fault is not None:
            return kept.fault.outcome is not Detection.NOT_RUN
        return kept.healthy is not None and kept.healthy.verdict is not Verdict.INCONCLUSIVE

    def _empty(self, *parts: str) -> Path:
        directory = self.directory.joinpath(*parts)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        return directory.resolve()

    def _file(self, name: str) -> Path:
        return self.directory / "cells" / f"{name}.json"

    def _keep(self, name: str, kept: Kept) -> None:
        path = self._file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        writing.replace(path, msgspec.json.encode(kept))

    def _kept(self, name: str) -> Kept | None:
        """None for a cell that was never made, or that another version of the program wrote."""
        try:
            return msgspec.json.decode(self._file(name).read_bytes(), type=Kept)
        except (OSError, msgspec.MsgspecError):
            return None


def _slug(name: str) -> str:
    return "healthy-" + re.sub(r"[^a-z0-9]+", "-", name.lower())
