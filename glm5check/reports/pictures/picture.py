"""A picture of measurements, and the same numbers as a table for those who cannot see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from glm5check.records import Measurement
from glm5check.reports.summary import shorten

_LONGEST_LABEL: Final = 36
"""Characters beside or below an axis; longer ones would leave no room for the picture. The table has them whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """`svg` is ours and safe to insert; every other text must be escaped. `caption` says in words what it shows."""

    key: str
    title: str
    caption: str
    svg: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def called(measurements: Iterable[Measurement], name: str) -> list[Measurement]:
    return [measurement for measurement in measurements if measurement.name == name]


def rank_order(text: str) -> tuple[int, str]:
    """Sort key that puts `2` before `10` and names after numbers."""
    return (int(text), "") if text.isdecimal() else (1 << 30, text)


def short(text: str) -> str:
    """`text` as a label of an axis or a line."""
    return shorten(text, _LONGEST_LABEL)
