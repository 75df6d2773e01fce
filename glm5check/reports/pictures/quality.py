"""Pictures of correctness: likelihood by position against the oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from glm5check.records import Measurement
from glm5check.reports.names import NLL
from glm5check.reports.pictures.picture import Picture, called, short
from glm5check.reports.pictures.svg import SERIES, Canvas

_SERVER: Final = "server"
_MAX_LINES: Final = 4
"""Prompts drawn: those on which the server is farthest from its oracle. The table has all."""


def nll_by_position(measurements: Sequence[Measurement]) -> Picture | None:
    """Mean negative log-likelihood by window of positions: a fault that grows with the position shows as a slope."""
    prompts: defaultdict[str, dict[str, Measurement]] = defaultdict(dict)
    for one in called(measurements, NLL):
        prompts[one.where.get("prompt", "")][one.where.get("source", _SERVER)] = one
    if not prompts:
        return None
    by_distance = sorted(prompts, key=lambda prompt: -_distance(prompts[prompt]))
    with Canvas("nll", 3.6) as canvas:
        for number, prompt in enumerate(by_distance[:_MAX_LINES]):
            for source, one in prompts[prompt].items():
                window = int(one.where.get("window", "1"))
                canvas.axes.plot(
                    [window * index for index in range(len(one.samples))],
                    one.samples,
                    "-o" if source == _SERVER else "--",
                    color=SERIES[number % len(SERIES)],
                    markersize=3,
                    label=short(f"{prompt}, {source}"),
                )
        canvas.axes.set_xlabel("position, tokens")
        canvas.axes.set_ylabel("NLL, nat per token")
        canvas.figure.legend(loc="outside upper left", ncols=2, fontsize="small")
    worst = by_distance[0]
    return Picture(
        key="nll",
        title="Likelihood by position",
        caption=f"Solid: the server. Dashed: who it is judged by. Lower is likelier. Farthest apart: {worst}, "
        f"{_distance(prompts[worst]):+.2g} nat per token on average.",
        svg=canvas.svg,
        columns=("prompt", "source", "mean, nat", "first window", "last window"),
        rows=tuple(
            (prompt, source, f"{fmean(one.samples):.4f}", f"{one.samples[0]:.4f}", f"{one.samples[-1]:.4f}")
            for prompt in by_distance
            for source, one in prompts[prompt].items()
        ),
    )


def _distance(sources: dict[str, Measurement]) -> float:
    """Mean of the server minus mean of the first other source; 0 where one is missing."""
    server = sources.get(_SERVER)
    others = [one for source, one in sources.items() if source != _SERVER]
    return fmean(server.samples) - fmean(others[0].samples) if server and others else 0.0
