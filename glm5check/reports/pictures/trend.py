"""Picture of one quantity over the nights, with the band in which it moved before the last one."""

from __future__ import annotations

from typing import Final

from glm5check.reports.history import Trend
from glm5check.reports.model import where_text
from glm5check.reports.pictures.picture import Picture
from glm5check.reports.pictures.svg import GRID, SERIES, Canvas

_DATES: Final = 6
"""Most dates below the axis."""


def trend(one: Trend, key: str) -> Picture | None:
    """None for a single night. Dotted lines stand where the fingerprint changed."""
    if len(one.points) < 2:
        return None
    with Canvas(key, 2.6) as canvas:
        _draw(canvas, one)
    last = one.points[-1]
    return Picture(
        key=key,
        title=f"{one.name} {where_text(one.where)}".strip(),
        caption=f"{len(one.points)} nights; the last: {last.median:,.4g} {one.unit}{_against_band(one)}. "
        "Dotted lines: something that the fingerprint holds changed.",
        svg=canvas.svg,
        columns=("night", f"median, {one.unit}", "low", "high", "what changed since the night before"),
        rows=tuple(
            (point.started, f"{point.median:,.4g}", f"{point.low:,.4g}", f"{point.high:,.4g}", "; ".join(point.changed))
            for point in one.points
        ),
    )


def _draw(canvas: Canvas, one: Trend) -> None:
    axes, nights = canvas.axes, range(len(one.points))
    middle = [point.median for point in one.points]
    low = [point.median - point.low for point in one.points]
    high = [point.high - point.median for point in one.points]
    if one.band is not None:
        axes.axhspan(one.band.low, one.band.high, color=GRID, alpha=0.6, label="band of the nights before")
        axes.legend()
    axes.errorbar(nights, middle, yerr=[low, high], fmt="o-", color=SERIES[0], capsize=3)
    for night, point in enumerate(one.points):
        if point.changed:
            axes.axvline(night - 0.5, color=SERIES[3], linestyle=":", linewidth=1.5)
    shown = [night for night in nights if night % max(1, len(nights) // _DATES) == 0]
    axes.set_xticks(shown, [one.points[night].started[5:10] for night in shown])
    axes.set_xlabel("night")
    axes.set_ylabel(one.unit)


def _against_band(one: Trend) -> str:
    if one.band is None:
        return ""
    value = one.points[-1].median
    if one.band.low <= value <= one.band.high:
        return ", inside the band of the nights before"
    is_better = (value > one.band.high) == one.higher_is_better
    return f", outside the band of the nights before and {'better' if is_better else 'worse'}"
