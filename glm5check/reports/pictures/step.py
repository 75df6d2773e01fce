"""Pictures of a decode step: where its time goes, and how long its all-reduces take on each rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Final

import numpy as np

from glm5check.records import Measurement
from glm5check.reports.names import ALL_REDUCE, GAP, STEP_TIME
from glm5check.reports.pictures.picture import Picture, called, rank_order, short
from glm5check.reports.pictures.svg import GRID, INK, SERIES, Canvas

_LOGARITHMIC_FROM: Final = 20.0
"""Ratio of largest to smallest beyond which a linear axis hides the small ones."""

_BOX: Final = ("whislo", "q1", "med", "q3", "whishi")
"""Matplotlib's names of the quantiles that a box shows."""


def waterfall(measurements: Sequence[Measurement]) -> Picture | None:
    """One mean decode step of the slowest rank, kind of work after kind of work; the table has every rank."""
    ranks: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for one in called(measurements, STEP_TIME):
        ranks[one.where.get("rank", "0")][one.where.get("work", "other")] = fmean(one.samples)
    if not ranks:
        return None
    slowest = max(ranks, key=lambda rank: sum(ranks[rank].values()))
    works = sorted(ranks[slowest], key=lambda work: (work == GAP, -ranks[slowest][work]))
    total = sum(ranks[slowest].values())
    if total <= 0:
        return None
    with Canvas("step", 0.9 + 0.42 * len(works)) as canvas:
        _draw_waterfall(canvas, works, ranks[slowest], total)
    largest = works[0]
    return Picture(
        key="step",
        title="One decode step",
        caption=f"{total:,.0f} us on rank {slowest}, the slowest. Most of it: {largest}, "
        f"{ranks[slowest][largest]:,.0f} us ({ranks[slowest][largest] / total:.0%}). Gaps are times without a kernel. "
        "Mean over the steady steps of the profile; where kernels overlap, time is counted once.",
        svg=canvas.svg,
        columns=("rank", *works, "sum, us"),
        rows=tuple(
            (rank, *(f"{ranks[rank].get(work, 0):,.1f}" for work in works), f"{sum(ranks[rank].values()):,.1f}")
            for rank in sorted(ranks, key=rank_order)
        ),
    )


def _draw_waterfall(canvas: Canvas, works: Sequence[str], times: dict[str, float], total: float) -> None:
    axes, begin = canvas.axes, 0.0
    for row, work in enumerate(works):
        colour = GRID if work == GAP else SERIES[row % len(SERIES)]
        axes.barh(row, times[work], left=begin, height=0.62, color=colour)
        is_late = begin + times[work] > 0.6 * total
        axes.annotate(
            f"{times[work]:,.0f} us, {times[work] / total:.0%}",
            (begin if is_late else begin + times[work], row),
            (-5 if is_late else 5, 0),
            textcoords="offset points",
            ha="right" if is_late else "left",
            va="center",
        )
        begin += times[work]
    axes.set_yticks(range(len(works)), [short(work) for work in works])
    axes.invert_yaxis()
    axes.set_xlim(0, total)
    axes.set_xlabel("us since the step's first kernel, kinds of work put one after another")
    axes.grid(axis="y", visible=False)


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
