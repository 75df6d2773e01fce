"""What evidence and scores hold, as measurements that the report draws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean
from typing import Final

from glm5check.evidence import Recording, Work
from glm5check.records import Measurement, Scores
from glm5check.reports.names import ALL_REDUCE, GAP, NLL, STEP_TIME

NLL_WINDOW: Final = 16
"""Scored tokens a point: long enough to be readable, short enough to show where a slope begins."""


def of_recording(recording: Recording) -> list[Measurement]:
    """Where the time of each steady step went on each rank, and how long each all-reduce took, in us."""
    measurements = []
    for trace in recording.ranks:
        rank = str(trace.rank)
        timed = [step for step in trace.steady if step.period_us is not None]
        times: dict[str, list[float]] = {
            str(work): [step.busy_us.get(work, 0.0) for step in timed]
            for work in Work
            if any(step.busy_us.get(work) for step in timed)
        }
        times[GAP] = [step.period_us - sum(step.busy_us.values()) for step in timed if step.period_us is not None]
        latencies = [kernel.duration_us for step in trace.steady for kernel in step.all_reduces]
        measurements += [_us(STEP_TIME, samples, rank=rank, work=work) for work, samples in times.items() if samples]
        if latencies:
            measurements.append(_us(ALL_REDUCE, latencies, rank=rank))
    return measurements


def of_scores(scores: Iterable[Scores], source: str) -> list[Measurement]:
    """Mean negative log-likelihood of each window of NLL_WINDOW scored tokens; a shorter rest is left out."""
    measurements = []
    for one in scores:
        windows: defaultdict[int, list[float]] = defaultdict(list)
        for position, choice in enumerate(one.tokens):
            windows[position // NLL_WINDOW].append(-choice.logprob)
        means = [fmean(window) for window in windows.values() if len(window) == NLL_WINDOW]
        if means:
            where = {"prompt": one.prompt, "source": source, "window": str(NLL_WINDOW)}
            measurements.append(
                Measurement(name=NLL, unit="nat", samples=tuple(means), higher_is_better=False, where=where)
            )
    return measurements


def _us(name: str, samples: Iterable[float], **where: str) -> Measurement:
    return Measurement(name=name, unit="us", samples=tuple(samples), higher_is_better=False, where=where)
