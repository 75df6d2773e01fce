"""Repeated rounds of workloads on one server, with what the machine gave while they ran.

Rounds of several workloads are interleaved, so that a drift of the machine meets all of them alike and ratios taken
within a round do not see it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from glm5check.calibration import Neighbours, Pace
from glm5check.pulse import Pulse
from glm5check.records import GpuState, Measurement
from glm5check.serving.timing import LoadRun
from glm5check.serving.workloads import Workload


@dataclass(slots=True, kw_only=True)
class Series:
    """All rounds of one workload, with what the machine gave meanwhile.

    `paces` (seconds of a calibration unit, one a round) is empty where nothing is calibrated, `withheld`
    (glm5check.pulse) where there is no pulse, `gpus` where no GPU serves; `busy` is the neighbours' CPU share.
    """

    workload: Workload
    runs: list[LoadRun] = field(default_factory=list)
    paces: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    withheld: list[float] = field(default_factory=list)
    gpus: list[GpuState] = field(default_factory=list)

    def measurement(self, where: Mapping[str, str] | None = None) -> Measurement:
        """The values of all rounds that completed, in order, as measured."""
        return self._as_measurement([self.workload.value(run) for run in self.runs], where)

    def at_median_pace(self) -> Measurement:
        """Speeds as they would be had the machine been as fast in every round as in the median one.

        A round whose units took twice as long counts with twice its speed. As measured where nothing is calibrated.
        """
        if not self.paces:
            return self.measurement()
        scales = np.array(self.paces) / self.pace
        return self._as_measurement([self.workload.value(run) for run in self.runs] * scales)

    @property
    def pace(self) -> float:
        """Seconds of a calibration unit in the median round; NaN where nothing is calibrated."""
        return float(np.nanmedian(self.paces)) if self.paces else math.nan

    def _as_measurement(self, values: Iterable[float], where: Mapping[str, str] | None = None) -> Measurement:
        return Measurement(
            name=self.workload.name,
            unit=self.workload.unit,
            samples=tuple(float(value) for value in values if math.isfinite(value)),
            higher_is_better=self.workload.higher_is_better,
            where=where or {},
        )

    @property
    def neighbours(self) -> float:
        """Mean share of the machine's CPUs that other programs took during the rounds."""
        return float(np.mean(self.busy)) if self.busy else 0.0


class Rounds:
    """Runs rounds on one server and keeps them by workload. Each round has prompts of its own."""

    def __init__(
        self,
        base_url: str,
        workloads: Mapping[str, Workload],
        *,
        api_key: str = "",
        pace: Pace | None = None,
        pulse: Pulse | None = None,
        gpus: Callable[[], Sequence[GpuState]] = tuple,
    ) -> None:
        self.base_url, self.api_key, self.pace, self.pulse, self.gpus = base_url, api_key, pace, pulse, gpus
        self.series = {name: Series(workload=workload) for name, workload in workloads.items()}
        self._seed = 0

    def warm_up(self, name: str, count: int = 2) -> float:
        """Rounds that are not kept: first requests compile, capture and fill caches. Returns seconds of the last."""
        start = 0.0
        for _ in range(count):
            start = time.monotonic()
            self._run(name)
        return time.monotonic() - start

    def one(self, name: str) -> LoadRun:
        """One kept round of one workload."""
        series = self.series[name]
        neighbours = Neighbours()
        if self.pulse:
            self.pulse.start()
        if self.pace:
            self.pace.start()
        run = self._run(name)
        if self.pace:
            series.paces.append(self.pace.stop())
        if self.pulse:
            series.withheld.append(self.pulse.withheld())
        series.busy.append(neighbours.share())
        # Right after the last token: NVML's utilisation still covers the round, the clocks have not gone down.
        series.gpus.extend(self.gpus())
        series.runs.append(run)
        return run

    def until(
        self, names: Sequence[str], looks: Sequence[int], settled: Callable[[], bool], *, budget_s: float
    ) -> None:
        """Interleave rounds of `names` until `settled` says so at one of `looks` (rounds in all), or looks run out.

        No turn begins after `budget_s` seconds.
        """
        end = time.monotonic() + budget_s
        for look in looks:
            while len(self.series[names[0]].runs) < look:
                if time.monotonic() > end:
                    return
                for name in names:
                    self.one(name)
            if settled():
                return

    def _run(self, name: str) -> LoadRun:
        self._seed += 1
        return self.series[name].workload.run(self.base_url, seed=self._seed, api_key=self.api_key)
