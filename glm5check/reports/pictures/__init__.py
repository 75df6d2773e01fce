"""The report's pictures, each only where its data is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from glm5check.records import Finding, Measurement
from glm5check.reports.history import Trend
from glm5check.reports.names import ALL_REDUCE, NLL, STEP
from glm5check.reports.pictures.picture import Picture
from glm5check.reports.pictures.quality import nll_by_position
from glm5check.reports.pictures.speed import ladder, speeds
from glm5check.reports.pictures.step import all_reduce_by_rank, waterfall
from glm5check.reports.pictures.trend import trend

MAX_TRENDS: Final = 24
_DETAILS: Final = (ALL_REDUCE, NLL)
"""Measurements by rank or position: too many to follow one by one."""

__all__ = ["Picture", "draw", "draw_trends"]


def draw(
    measurements: Sequence[Measurement], findings: Sequence[Finding] = (), trends: Sequence[Trend] = ()
) -> list[Picture]:
    """Everything about one run.

    `findings` add floors and bounds, `trends` the band of earlier nights, to the picture of speeds.
    """
    drawn = (
        waterfall(measurements),
        all_reduce_by_rank(measurements),
        speeds(measurements, findings, trends),
        nll_by_position(measurements),
        ladder(measurements),
    )
    return [picture for picture in drawn if picture is not None]


def draw_trends(trends: Sequence[Trend]) -> list[Picture]:
    """One picture a quantity that was measured on two nights or more and is a single number of the deployment."""
    numbers = [one for one in trends if one.name not in _DETAILS and not one.name.startswith(STEP)]
    drawn = (trend(one, f"trend-{number}") for number, one in enumerate(numbers))
    return [picture for picture in drawn if picture is not None][:MAX_TRENDS]
