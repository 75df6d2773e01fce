"""Nights: reports kept in a directory, and what each measured quantity did over them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from glm5check.errors import ReportError
from glm5check.records import Measurement
from glm5check.reports import json_report
from glm5check.reports.model import Report

BAND_PERCENT: Final = (5.0, 95.0)
"""Percentiles of the earlier nights' medians that make the noise band. It is drawn and decides nothing."""
BAND_MIN_NIGHTS: Final = 5
"""Fewest earlier nights whose spread says anything about noise."""
_VOLATILE_STARTS: Final = ("process.", "cpu.load")
_VOLATILE_ENDS: Final = (".clocks", ".temperature", ".throttling", "_FILE", "_DIR", "_ROOT", "_PORT")
"""Facts of a fingerprint that differ between any two runs, or say what the machine did at one moment."""


@dataclass(frozen=True, slots=True)
class Band:
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One night's median and range; `changed` says what the fingerprint has different from the night before."""

    started: str
    median: float
    low: float
    high: float
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One quantity, oldest night first. `band` is where the nights before the last moved, None if they are few."""

    name: str
    unit: str
    where: Mapping[str, str]
    higher_is_better: bool
    points: tuple[Point, ...]
    band: Band | None


def load_reports(path: Path) -> list[Report]:
    """Reports of a file, or of a directory (`*.json` in it and `report.json` one level below), oldest first.

    Raises ReportError if there is none, or if one of the files cannot be read.
    """
    files = [path] if path.is_file() else sorted([*path.glob("*.json"), *path.glob(f"*/{json_report.FILE}")])
    if not files:
        raise ReportError("there is no report", where=str(path), do="give a report.json, or a directory of them")
    return sorted((json_report.read(file) for file in files), key=lambda report: report.started)


def append(report: Report, directory: Path) -> Path:
    """Keep `report` in `directory` under a name made of its start and content; twice the same report is one file."""
    text = json_report.render(report)
    when = report.started.replace(":", "").replace("+0000", "Z")
    path = directory / f"{when}-{hashlib.sha256(text).hexdigest()[:8]}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    except OSError as error:
        raise ReportError(f"the history cannot be written: {error.strerror}", where=str(path)) from None
    return path


def with_this(report: Report, earlier: Iterable[Report]) -> list[Report]:
    """The nights up to and including `report`, each once."""
    return [*(other for other in earlier if other.started < report.started), report]


def trends(reports: Sequence[Report]) -> list[Trend]:
    """Every quantity that the last report measured, over all of them (given oldest first)."""
    if not reports:
        return []
    changes = [(), *(changed(before.fingerprint, after.fingerprint) for before, after in pairwise(reports))]
    found: defaultdict[tuple[str, str, frozenset[tuple[str, str]]], list[Point]] = defaultdict(list)
    for report, change in zip(reports, changes, strict=True):
        for key, samples in _samples(report).items():
            found[key].append(
                Point(
                    started=report.started, median=median(samples), low=min(samples), high=max(samples), changed=change
                )
            )
    latest = {_key(one): one for one in reports[-1].measurements}
    return [
        Trend(
            name=one.name,
            unit=one.unit,
            where=one.where,
            higher_is_better=one.higher_is_better,
            points=tuple(found[key]),
            band=_band([point.median for point in found[key][:-1]]),
        )
        for key, one in latest.items()
    ]


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """`key: before -> after` for every fact that two comparable nights should share."""
    keys = sorted(key for key in before.keys() | after.keys() if not _is_volatile(key))
    return tuple(
        f"{key}: {before.get(key, '(missing)')} -> {after.get(key, '(missing)')}"
        for key in keys
        if before.get(key) != after.get(key)
    )


def _is_volatile(key: str) -> bool:
    return key.startswith(_VOLATILE_STARTS) or key.endswith(_VOLATILE_ENDS)


def _key(one: Measurement) -> tuple[str, str, frozenset[tuple[str, str]]]:
    return one.name, one.unit, frozenset(one.where.items())


def _samples(report: Report) -> Mapping[tuple[str, str, frozenset[tuple[str, str]]], list[float]]:
    samples: defaultdict[tuple[str, str, frozenset[tuple[str, str]]], list[float]] = defaultdict(list)
    for one in report.measurements:
        samples[_key(one)] += one.samples
    return samples


def _band(medians: Sequence[float]) -> Band | None:
    if len(medians) < BAND_MIN_NIGHTS:
        return None
    low, high = np.percentile(np.asarray(medians, dtype=np.float64), BAND_PERCENT)
    return Band(float(low), float(high))
