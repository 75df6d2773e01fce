"""Where the time of a decode step goes, from the traces of all ranks.

An all-reduce kernel runs from when its rank arrives until the last rank has come and the data has moved. So of the n-th
all-reduce of a step, the shortest run of all ranks is what the transfer takes (net), and what a rank spends beyond that
it spends waiting. This compares durations only: no clock of one rank is compared with another's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median

from glm5check.evidence import DecodeStep, RankTrace, Work


class Part(StrEnum):
    """What a step's time divides into; the parts sum to the step."""

    NET = "all-reduce net"
    WAITING = "waiting for other ranks"
    COLLECTIVE = "other collectives"
    MOE = "MoE"
    ATTENTION = "attention"
    GEMM = "GEMM"
    OTHER = "other kernels"
    GAPS = "gaps between kernels"


_WORKS = {
    Work.MOE: Part.MOE,
    Work.ATTENTION: Part.ATTENTION,
    Work.GEMM: Part.GEMM,
    Work.OTHER: Part.OTHER,
    Work.COLLECTIVE: Part.COLLECTIVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionTimes:
    """Of every all-reduce of every steady step, in order: net (least of the ranks) and skew (most - least), in us."""

    net_us: tuple[float, ...]
    skew_us: tuple[float, ...]

    @property
    def median_net_us(self) -> float:
        return median(self.net_us)

    @property
    def median_skew_us(self) -> float:
        return median(self.skew_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """A rank's mean steady step in us, and its parts, which sum to it."""

    rank: int
    step_us: float
    parts_us: Mapping[Part, float]

    def lasting(self, step_us: float) -> Division:
        """The same work in a step of another length: what changes is the gaps.

        Profiling lengthens the gaps, not the kernels, so with the unprofiled time of a step this is how it divides.
        """
        busy = sum(time for part, time in self.parts_us.items() if part is not Part.GAPS)
        parts = {**self.parts_us, Part.GAPS: max(0.0, step_us - busy)}
        return Division(rank=self.rank, step_us=sum(parts.values()), parts_us=parts)

    @property
    def largest(self) -> Part:
        """The one part that bounds the step."""
        return max(self.parts_us, key=lambda part: self.parts_us[part])

    @property
    def work_us(self) -> float:
        """All but idling: kernels that compute, and the wire."""
        return self.step_us - self.parts_us[Part.GAPS] - self.parts_us[Part.WAITING]

    def share(self, part: Part) -> float:
        return self.parts_us[part] / self.step_us


def reduction_times(ranks: Sequence[RankTrace]) -> ReductionTimes | None:
    """Match the ranks' all-reduces by step and order; None with fewer than two ranks, or if their numbers differ."""
    durations = [
        [kernel.duration_us for step in trace.steady for kernel in step.all_reduces] for trace in ranks if trace.steady
    ]
    shapes = {tuple(len(step.all_reduces) for step in trace.steady) for trace in ranks}
    if len(shapes) != 1 or len(durations) < 2 or not durations[0]:
        return None
    each = list(zip(*durations, strict=True))
    return ReductionTimes(
        net_us=tuple(min(group) for group in each), skew_us=tuple(max(group) - min(group) for group in each)
    )


def divisions(ranks: Sequence[RankTrace]) -> list[Division]:
    """How each rank's mean steady step divides, the rank that waits least (and that others wait for) first.

    Of an all-reduce that other kernels hide, only the exposed part counts; it is split into net and waiting as the
    durations are. With one rank's trace alone, waiting cannot be told from transfer and counts as net.
    """
    times = reduction_times(ranks)
    found = []
    for trace in ranks:
        steps = [step for step in trace.steady if step.period_us is not None]
        if steps:
            durations = sum(kernel.duration_us for step in trace.steady for kernel in step.all_reduces)
            net_share = sum(times.net_us) / durations if times and durations else 1.0
            found.append(_division(trace.rank, steps, net_share))
    return sorted(found, key=lambda division: division.share(Part.WAITING))


def _division(rank: int, steps: Sequence[DecodeStep], net_share: float) -> Division:
    period = fmean(step.period_us or 0.0 for step in steps)
    busy = {work: fmean(step.busy_us.get(work, 0.0) for step in steps) for work in Work}
    exposed = busy[Work.ALL_REDUCE]
    parts = {Part.NET: exposed * net_share, Part.WAITING: exposed * (1 - net_share)}
    parts |= {part: busy[work] for work, part in _WORKS.items()}
    parts[Part.GAPS] = max(0.0, period - sum(busy.values()))
    return Division(rank=rank, step_us=period, parts_us=parts)
