"""Pictures of speed: tok/s against floor, bound and target, and the concurrency ladder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from glm5check.records import Finding, Measurement
from glm5check.reports.history import Band, Trend
from glm5check.reports.names import LADDER, LINES, MEASURE, SPEED_UNIT
from glm5check.reports.pictures.picture import Picture, short
from glm5check.reports.pictures.svg import GRID, INK, SERIES, Canvas

_COLOURS: Final = {"floor": SERIES[3], "bound": SERIES[2], "target": SERIES[4]}
_LOGARITHMIC_FROM: Final = 20.0
"""Ratio of the fastest to the slowest beyond which a linear axis hides the slow ones: prefill beside decode."""


def speeds(
    measurements: Sequence[Measurement], findings: Sequence[Finding] = (), trends: Sequence[Trend] = ()
) -> Picture | None:
    """Every sample in tok/s, with floor, bound and target where they are known, and the band of earlier nights."""
    measured = {
        one.name: one.samples for one in measurements if one.unit == SPEED_UNIT and not LADDER.fullmatch(one.name)
    }
    if not measured:
        return None
    lines = _lines(findings)
    bands = {trend.name: trend.band for trend in trends if trend.band is not None}
    with Canvas("speed", 1.2 + 0.5 * len(measured)) as canvas:
        for row, (name, samples) in enumerate(measured.items()):
            _draw_row(canvas, row, samples, lines[name], bands.get(name))
        _draw_frame(canvas, measured, [kind for kind in _COLOURS if any(kind in lines[name] for name in measured)])
    return Picture(
        key="speed",
        title="Speed against floor and bound",
        caption="Each dot is one measurement; grey: the earlier nights. Below the floor fails; nothing can be "
        "faster than the bound, which follows from the bytes that a step reads and the all-reduces that it waits for.",
        svg=canvas.svg,
        columns=("what", "median", "least", "most", *_COLOURS, "samples"),
        rows=tuple(_speed_row(name, samples, lines[name]) for name, samples in measured.items()),
    )


def _lines(findings: Iterable[Finding]) -> defaultdict[str, dict[str, float]]:
    """Floor, bound and target of each measurement, by its name."""
    lines: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for finding in findings:
        if finding.check in LINES and finding.unit == SPEED_UNIT and finding.bound is not None:
            lines[finding.where.get(MEASURE, "")][LINES[finding.check]] = finding.bound
    return lines


def _draw_frame(canvas: Canvas, measured: Mapping[str, Sequence[float]], kinds: Iterable[str]) -> None:
    axes = canvas.axes
    for kind in kinds:
        axes.plot([], [], "s", color=_COLOURS[kind], label=kind)
    axes.plot([], [], "D", color=INK, label="median")
    axes.set_yticks(range(len(measured)), [short(name) for name in measured])
    axes.set_ylim(len(measured) - 0.4, -0.6)
    axes.set_xlabel(SPEED_UNIT)
    axes.grid(axis="y", visible=False)
    middle = [median(samples) for samples in measured.values()]
    if min(middle) > 0 and max(middle) > _LOGARITHMIC_FROM * min(middle):
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    canvas.figure.legend(loc="outside upper left", ncols=len(_COLOURS) + 1)


def _draw_row(
    canvas: Canvas, row: int, samples: Sequence[float], lines: Mapping[str, float], band: Band | None
) -> None:
    axes = canvas.axes
    if band is not None:
        axes.barh(row, band.high - band.low, left=band.low, height=0.66, color=GRID)
    axes.plot(samples, [row] * len(samples), "o", color=SERIES[0], alpha=0.45, markersize=4)
    axes.plot([median(samples)], [row], "D", color=INK, markersize=6)
    for kind, value in lines.items():
        axes.plot([value], [row], "|", color=_COLOURS[kind], markersize=22, markeredgewidth=3)


def _speed_row(name: str, samples: Sequence[float], lines: Mapping[str, float]) -> tuple[str, ...]:
    numbers = (median(samples), min(samples), max(samples))
    known = tuple(f"{lines[kind]:,.4g}" if kind in lines else "" for kind in _COLOURS)
    return (name, *(f"{number:,.4g}" for number in numbers), *known, str(len(samples)))


def ladder(measurements: Sequence[Measurement]) -> Picture | None:
    """Throughput by number of concurrent requests, from two on; None for fewer."""
    lines = _ladders(measurements)
    if not lines:
        return None
    with Canvas("ladder", 3.6) as canvas:
        for number, (what, steps) in enumerate(lines.items()):
            middle = [median(samples) for samples in steps.values()]
            below = [value - min(samples) for value, samples in zip(middle, steps.values(), strict=True)]
            above = [max(samples) - value for value, samples in zip(middle, steps.values(), strict=True)]
            colour = SERIES[number % len(SERIES)]
            canvas.axes.errorbar(
                list(steps), middle, yerr=[below, above], fmt="o-", color=colour, capsize=3, label=short(what)
            )
        ticks = sorted({count for steps in lines.values() for count in steps})
        canvas.axes.set_xscale("log", base=2)
        canvas.axes.set_xticks(ticks, list(map(str, ticks)))
        canvas.axes.minorticks_off()
        canvas.axes.set_xlabel("concurrent requests")
        canvas.axes.set_ylabel(f"{SPEED_UNIT}, all requests together")
        canvas.axes.set_ylim(bottom=0)
        canvas.axes.legend()
    return Picture(
        key="ladder",
        title="Concurrency ladder",
        caption="Median and range of the throughput by how many requests run at once.",
        svg=canvas.svg,
        columns=("what", "concurrent requests", "median tok/s", "samples"),
        rows=tuple(
            (what, str(count), f"{median(samples):,.4g}", str(len(samples)))
            for what, steps in lines.items()
            for count, samples in steps.items()
        ),
    )


def _ladders(measurements: Sequence[Measurement]) -> dict[str, dict[int, Sequence[float]]]:
    """Samples by number of requests, ascending; what was measured at one number only is no ladder."""
    lines: defaultdict[str, dict[int, Sequence[float]]] = defaultdict(dict)
    for one in measurements:
        rung = LADDER.fullmatch(one.name)
        if rung and one.unit == SPEED_UNIT:
            lines[rung["what"]][int(rung["count"])] = one.samples
    return {what: dict(sorted(steps.items())) for what, steps in lines.items() if len(steps) > 1}
