"""What evidence and scores hold, as measurements that the report draws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean
from typing import Final

from glm5check.evidence import Recording
from glm5check.records import Measurement, Scores
from glm5check.reports.names import ALL_REDUCE, NLL

NLL_WINDOW: Final = 16
"""Scored tokens a point: long enough to be readable, short enough to show where a slope begins."""


def of_recording(recording: Recording) -> list[Measurement]:
    """How long each all-reduce of the steady steps took on each rank, in us."""
    latencies = {
        trace.rank: tuple(kernel.duration_us for step in trace.steady for kernel in step.all_reduces)
        for trace in recording.ranks
    }
    return [
        Measurement(name=ALL_REDUCE, unit="us", samples=samples, higher_is_better=False, where={"rank": str(rank)})
        for rank, samples in latencies.items()
        if samples
    ]


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
