"""The result of a sweep: a table in Markdown and a plot of the intervals."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from glm5check.reports.markdown_report import escape
from glm5check.roofline import Bound
from glm5check.serving.sweep import CONFIDENCE, Rank, settings_text, ties

TABLE: Final = "sweep.md"
PLOT: Final = "sweep.svg"


def render(ranks: Sequence[Rank], subject: str, bound: Bound | None) -> str:
    """The ranking as Markdown. `subject` says what was swept (model, ranks), `bound` what the machine allows."""
    lines = [
        f"# Sweep of {escape(subject)}",
        "",
        f"Single-stream decode, tok/s: median and its {CONFIDENCE:.0%} interval over all blocks.",
    ]
    if bound is not None:
        lines.append(f"This machine allows at most {bound.tokens_per_second:.4g} tok/s ({bound}).")
    lines += [
        "",
        "| | candidate | tok/s | interval | of the bound | rounds | settings |",
        "|---|---|---|---|---|---|---|",
    ]
    for place, rank in enumerate(ranks, 1):
        if rank.interval is None:
            numbers = f"- | out: {escape(rank.wrong or 'nothing was measured')} | - | {len(rank.samples)}"
        else:
            interval = rank.interval
            share = f"{bound.share(interval.centre):.1%}" if bound else "-"
            known = f"{interval.low:.4g} to {interval.high:.4g}" if isfinite(interval.low) else "too few rounds"
            numbers = f"{interval.centre:.4g} | {known} | {share} | {len(rank.samples)}"
        settings = escape(settings_text(rank.candidate))
        lines.append(f"| {place if rank.interval else '-'} | {escape(rank.candidate.name)} | {numbers} | {settings} |")
    undecided = [f"{escape(faster)} and {escape(slower)}" for faster, slower in ties(ranks)]
    if undecided:
        lines += ["", f"Intervals overlap, so their order may be chance: {'; '.join(undecided)}."]
    return "\n".join(lines) + "\n"


def draw(ranks: Sequence[Rank], path: Path) -> None:
    """Intervals of the right candidates and every sample as a dot, fastest on top; nothing where none is right."""
    right = [rank for rank in ranks if rank.interval is not None]
    if not right:
        return
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "glm5check", "text.parse_math": False}):
        figure = Figure(figsize=(8, 1.2 + 0.5 * len(right)), layout="constrained")
        axes = figure.subplots()
        for row, rank in enumerate(reversed(right)):
            assert rank.interval is not None
            axes.plot(rank.samples, [row] * len(rank.samples), "|", color="0.6", markersize=9)
            axes.hlines(row, rank.interval.low, rank.interval.high, color="C0", linewidth=4, alpha=0.5)
            axes.plot(rank.interval.centre, row, "o", color="C0")
        axes.set_yticks(range(len(right)), [rank.candidate.name for rank in reversed(right)])
        axes.set_xlabel(f"tok/s of one stream, median and its {CONFIDENCE:.0%} interval")
        axes.grid(axis="x", alpha=0.3)
        figure.savefig(path, metadata={"Date": None})


def write(ranks: Sequence[Rank], directory: Path, subject: str, bound: Bound | None = None) -> None:
    """Write table and plot into `directory`."""
    (directory / TABLE).write_text(render(ranks, subject, bound), encoding="utf-8")
    draw(ranks, directory / PLOT)
