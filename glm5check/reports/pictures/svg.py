"""Matplotlib figures as inline SVG that follows the page: its text font, and its colours in light and in dark.

Figures are drawn in placeholder colours, which become CSS variables in the SVG: the page defines --ink, --grid, --paper
and --c0 to --c7. Text stays text, so that it can be read, searched and copied.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

INK: Final = "#010203"
GRID: Final = "#010204"
PAPER: Final = "#010205"
SERIES: Final = tuple(f"#0103{number:02x}" for number in range(8))
"""Colours of up to eight things in one picture."""
_VARIABLES: Final = {
    INK: "var(--ink)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--c{number})" for number, colour in enumerate(SERIES)},
}
_STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "glm5check",
    "text.parse_math": False,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "font.size": 10,
}
_WIDTH: Final = 7.2
"""Inches of 72 px: 518 px, which a phone shows by scrolling sideways a little."""


class Canvas:
    """One figure with one pair of axes; use as `with Canvas("a", height=3) as canvas: canvas.axes.plot(...)`.

    `height` and `width` are in inches.
    """

    def __init__(self, key: str, height: float, width: float = _WIDTH) -> None:
        self._key = key
        self._context = mpl.rc_context(_STYLE)
        self._size = (max(width, _WIDTH), height)

    def __enter__(self) -> Canvas:
        self._context.__enter__()
        self.figure = Figure(figsize=self._size, layout="constrained")
        self.axes: Any = self.figure.subplots()
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            buffer = io.StringIO()
            with warnings.catch_warnings():
                # Only widths are taken from matplotlib's font; the browser has one that holds Chinese.
                warnings.filterwarnings("ignore", message="Glyph .* missing from font")
                self.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
            self.svg = _inline(buffer.getvalue(), self._key)
        self._context.__exit__(*error)


def _inline(document: str, key: str) -> str:
    """The <svg> element alone, with ids that are unique on a page and colours that the page decides."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg[^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>', _opening, svg, count=1)
    svg = re.sub(r"font-family: [^;\"]*; ?", "", svg)
    for before, after in (('id="', f'id="{key}-'), ('href="#', f'href="#{key}-'), ("url(#", f"url(#{key}-")):
        svg = svg.replace(before, after)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return svg.replace("xlink:href", "href")


def _opening(svg: re.Match[str]) -> str:
    """Where there is less room the picture is scrolled, not shrunk: its text must stay readable."""
    return f'<svg viewBox="0 0 {svg[1]} {svg[2]}" style="min-width: {float(svg[1]):.0f}px" aria-hidden="true">'
