"""Pictures of correctness: likelihood by position against the oracle, and which test catches which seeded fault."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from glm5check.records import Measurement
from glm5check.reports.names import DETECTION, NLL
from glm5check.reports.pictures.picture import Picture, called, short
from glm5check.reports.pictures.svg import GRID, SERIES, Canvas

_SERVER: Final = "server"
_MAX_LINES: Final = 4
"""Prompts drawn: those on which the server is farthest from its oracle. The table has all."""
_RESULT_COLOURS: Final = {"caught": SERIES[2], "other": SERIES[0], "missed": SERIES[3], "false alarm": SERIES[4]}


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


def detection_matrix(measurements: Sequence[Measurement]) -> Picture | None:
    """Seeded faults by test: what was caught by the test that should, by another, or by none."""
    cells = {
        (one.where.get("fault", ""), one.where.get("test", "")): one.where.get("result", "")
        for one in called(measurements, DETECTION)
    }
    if not cells:
        return None
    faults, tests = sorted({fault for fault, _ in cells}), sorted({test for _, test in cells})
    labels = [short(test) for test in tests]
    with Canvas("detection", 1.2 + 0.26 * len(faults) + 0.08 * max(map(len, labels))) as canvas:
        axes = canvas.axes
        for result, colour in _RESULT_COLOURS.items():
            marked = [place for place, value in cells.items() if value == result]
            axes.plot(
                [tests.index(test) for _, test in marked],
                [faults.index(fault) for fault, _ in marked],
                "s",
                color=colour,
                markersize=9,
                label=result,
            )
        axes.set_xticks(
            range(len(tests)),
            [short(test) for test in tests],
            rotation=60,
            ha="right",
            fontsize="small",
        )
        axes.set_yticks(range(len(faults)), [short(fault) for fault in faults], fontsize="small")
        axes.set_ylim(len(faults) - 0.5, -0.5)
        axes.set_xlim(-0.5, len(tests) - 0.5)
        axes.tick_params(color=GRID)
        canvas.figure.legend(loc="outside upper left", ncols=4)
    caught = {fault for (fault, _), result in cells.items() if result in ("caught", "other")}
    return Picture(
        key="detection",
        title="Seeded faults, and who caught them",
        caption=f"{len(caught)} of {len(faults)} faults were caught. Other: not by the test named for it.",
        svg=canvas.svg,
        columns=("fault", "test", "result"),
        rows=tuple((fault, test, result) for (fault, test), result in sorted(cells.items())),
    )
