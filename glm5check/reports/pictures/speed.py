"""Pictures of speed: tok/s against floor, bound and target, and the concurrency ladder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, TypeAlias

from glm5check.records import Measurement
from glm5check.reports.history import Band, Trend
from glm5check.reports.model import where_text
from glm5check.reports.names import CONCURRENCY, LINES, SPEED_UNIT
from glm5check.reports.pictures.picture import Picture, short
from glm5check.reports.pictures.svg import GRID, INK, SERIES, Canvas

_COLOURS: Final = {"floor": SERIES[3], "bound": SERIES[2], "target": SERIES[4]}
_Place: TypeAlias = tuple[str, str]


def speeds(measurements: Sequence[Measurement], trends: Sequence[Trend] = ()) -> Picture | None:
    """Every sample in tok/s, with floor, bound and target where they are known, and the band of earlier nights."""
    measured, lines = _split(measurements)
    if not measured:
        return None
    bands = {(trend.name, where_text(trend.where)): trend.band for trend in trends if trend.band is not None}
    places = list(measured)
    with Canvas("speed", 1.2 + 0.5 * len(places)) as canvas:
        for row, place in enumerate(places):
            _draw_row(canvas, row, measured[place], lines[place], bands.get(place))
        for kind in LINES:
            if any(kind in lines[place] for place in places):
                canvas.axes.plot([], [], "s", color=_COLOURS[kind], label=kind)
        canvas.axes.plot([], [], "D", color=INK, label="median")
        if bands:
            canvas.axes.plot([], [], "s", color=GRID, label="earlier nights")
        canvas.axes.set_yticks(range(len(places)), [short(_title(place)) for place in places])
        canvas.axes.set_ylim(len(places) - 0.4, -0.6)
        canvas.axes.set_xlim(left=0)
        canvas.axes.set_xlabel(SPEED_UNIT)
        canvas.axes.grid(axis="y", visible=False)
        canvas.figure.legend(loc="outside upper left", ncols=5)
    return Picture(
        key="speed",
        title="Speed against floor and bound",
        caption="Each dot is one measurement. Below the floor fails; nothing can be faster than the bound, "
        "which follows from the bytes that a step reads and the all-reduces that it waits for.",
        svg=canvas.svg,
        columns=("what", "median", "least", "most", *LINES, "samples"),
        rows=tuple(_speed_row(place, measured[place], lines[place]) for place in places),
    )


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


def _split(measurements: Sequence[Measurement]) -> tuple[dict[_Place, list[float]], Mapping[_Place, dict[str, float]]]:
    """Measured speeds and the lines that belong to them, by name and place."""
    measured: dict[_Place, list[float]] = {}
    lines: defaultdict[_Place, dict[str, float]] = defaultdict(dict)
    for one in measurements:
        if one.unit != SPEED_UNIT:
            continue
        name, _, kind = one.name.rpartition(".")
        if kind in LINES:
            lines[name, where_text(one.where)][kind] = median(one.samples)
        else:
            measured.setdefault((one.name, where_text(one.where)), []).extend(one.samples)
    return measured, lines


def _speed_row(place: _Place, samples: Sequence[float], lines: Mapping[str, float]) -> tuple[str, ...]:
    numbers = (median(samples), min(samples), max(samples))
    known = tuple(f"{lines[kind]:,.4g}" if kind in lines else "" for kind in LINES)
    return (_title(place), *(f"{number:,.4g}" for number in numbers), *known, str(len(samples)))


def ladder(measurements: Sequence[Measurement]) -> Picture | None:
    """Throughput by number of concurrent requests, one line for what differs in nothing else."""
    lines = _ladders(measurements)
    if not lines:
        return None
    with Canvas("ladder", 3.6) as canvas:
        for number, (place, steps) in enumerate(lines.items()):
            middle = [median(samples) for samples in steps.values()]
            below = [value - min(samples) for value, samples in zip(middle, steps.values(), strict=True)]
            above = [max(samples) - value for value, samples in zip(middle, steps.values(), strict=True)]
            colour = SERIES[number % len(SERIES)]
            canvas.axes.errorbar(
                list(steps),
                middle,
                yerr=[below, above],
                fmt="o-",
                color=colour,
                capsize=3,
                label=short(_title(place)),
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
            (_title(place), str(count), f"{median(samples):,.4g}", str(len(samples)))
            for place, steps in lines.items()
            for count, samples in steps.items()
        ),
    )


def _ladders(measurements: Sequence[Measurement]) -> dict[_Place, dict[int, list[float]]]:
    """Samples by place and number of requests, ascending; what was measured at one number only is no ladder."""
    lines: defaultdict[_Place, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in measurements:
        count = one.where.get(CONCURRENCY, "")
        if one.unit == SPEED_UNIT and count.isdecimal() and one.name.rpartition(".")[2] not in LINES:
            lines[one.name, where_text(one.where, without=(CONCURRENCY,))][int(count)] += one.samples
    return {place: dict(sorted(steps.items())) for place, steps in lines.items() if len(steps) > 1}


def _title(place: _Place) -> str:
    return " ".join(place).strip()
