"""Pictures of a decode step: where its time goes, and how long its all-reduces take on each rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Final

import numpy as np

from glm5check.records import Measurement
from glm5check.reports.names import ALL_REDUCE, STEP
from glm5check.reports.pictures.picture import Picture, called, rank_order, short
from glm5check.reports.pictures.svg import GRID, INK, PAPER, SERIES, Canvas
from glm5check.trace.latency import Part

_LOGARITHMIC_FROM: Final = 20.0
"""Ratio of largest to smallest beyond which a linear axis hides the small ones."""

_WIDE: Final = 0.35
"""Share of the axis from which a bar holds its own label."""
_BOX: Final = ("whislo", "q1", "med", "q3", "whishi")
"""Matplotlib's names of the quantiles that a box shows."""


def waterfall(measurements: Sequence[Measurement]) -> Picture | None:
    """One mean decode step of one rank, part after part, the longest first and the gaps last."""
    parts = {one.name.removeprefix(STEP): one for one in measurements if one.name.startswith(STEP)}
    times = {part: fmean(one.samples) for part, one in parts.items()}
    total = sum(times.values())
    if total <= 0:
        return None
    order = sorted(times, key=lambda part: (part == Part.GAPS, -times[part]))
    with Canvas("step", 0.9 + 0.42 * len(order)) as canvas:
        _draw_waterfall(canvas, order, times, total)
    largest, rank = max(times, key=lambda part: times[part]), parts[order[0]].where.get("rank", "?")
    return Picture(
        key="step",
        title="One decode step",
        caption=f"{total:,.0f} us on rank {rank}, which waits least for the others. Most of it: {largest}, "
        f"{times[largest]:,.0f} us ({times[largest] / total:.0%}). Mean over the steady steps of the profile; "
        "where kernels overlap, time is counted once.",
        svg=canvas.svg,
        columns=("part", "us", "share"),
        rows=tuple((part, f"{times[part]:,.1f}", f"{times[part] / total:.1%}") for part in order),
    )


def _draw_waterfall(canvas: Canvas, works: Sequence[str], times: dict[str, float], total: float) -> None:
    axes, begin = canvas.axes, 0.0
    for row, work in enumerate(works):
        colour = GRID if work == Part.GAPS else SERIES[row % len(SERIES)]
        axes.barh(row, times[work], left=begin, height=0.62, color=colour)
        text = f"{times[work]:,.0f} us, {times[work] / total:.0%}"
        _label(canvas, text, row, begin, times[work], total, INK if work == Part.GAPS else PAPER)
        begin += times[work]
    axes.set_yticks(range(len(works)), [short(work) for work in works])
    axes.invert_yaxis()
    axes.set_xlim(0, total)
    axes.set_xlabel("us since the step's first kernel, its parts put one after another")
    axes.grid(axis="y", visible=False)


def _label(canvas: Canvas, text: str, row: int, begin: float, time: float, total: float, inside: str) -> None:
    """In the bar where it is wide enough, else beside it on the side that has room."""
    if time > _WIDE * total:
        canvas.axes.text(begin + time / 2, row, text, ha="center", va="center", color=inside)
        return
    is_late = begin + time > total / 2
    edge, shift, side = (begin, -5, "right") if is_late else (begin + time, 5, "left")
    canvas.axes.annotate(text, (edge, row), (shift, 0), textcoords="offset points", ha=side, va="center")


def all_reduce_by_rank(measurements: Sequence[Measurement]) -> Picture | None:
    """Quartiles of the latency on each rank. The fastest rank shows the net latency, the others also wait."""
    samples: defaultdict[str, list[float]] = defaultdict(list)
    for one in called(measurements, ALL_REDUCE):
        samples[one.where.get("rank", "0")] += one.samples
    if not samples:
        return None
    ranks = sorted(samples, key=rank_order)
    quantiles = {rank: np.percentile(samples[rank], (1, 25, 50, 75, 99)) for rank in ranks}
    with Canvas("all-reduce", 1.0 + 0.42 * len(ranks)) as canvas:
        boxes = [
            dict(
                zip(("whislo", "q1", "med", "q3", "whishi"), quantiles[rank], strict=True),
                label=short(f"rank {rank}"),
            )
            for rank in ranks
        ]
        line = {"color": INK}
        canvas.axes.bxp(
            boxes,
            orientation="horizontal",
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": SERIES[0], "edgecolor": INK},
            medianprops={**line, "linewidth": 2},
            whiskerprops=line,
            capprops=line,
        )
        canvas.axes.invert_yaxis()
        canvas.axes.set_xlabel("us an all-reduce (box: quartiles, bar: median, whiskers: 1 % and 99 %)")
        smallest, largest = min(q[0] for q in quantiles.values()), max(q[4] for q in quantiles.values())
        if smallest > 0 and largest > _LOGARITHMIC_FROM * smallest:
            canvas.axes.set_xscale("log")
        canvas.axes.grid(axis="y", visible=False)
    medians = {rank: float(quantiles[rank][2]) for rank in ranks}
    fastest = min(medians, key=lambda rank: medians[rank])
    return Picture(
        key="all-reduce",
        title="All-reduce latency by rank",
        caption=f"Median {medians[fastest]:,.1f} us on rank {fastest}, {max(medians.values()):,.1f} us on the slowest. "
        "An all-reduce ends on all ranks together, so a rank with long ones is one that arrives early and waits.",
        svg=canvas.svg,
        columns=("rank", "1 %", "25 %", "median", "75 %", "99 %", "count"),
        rows=tuple((rank, *(f"{value:,.2f}" for value in quantiles[rank]), str(len(samples[rank]))) for rank in ranks),
    )
