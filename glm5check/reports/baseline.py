"""Earlier runs to compare speed with: their samples by quantity, all nights together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from glm5check.fingerprint import require_same_machine
from glm5check.records import Measurement
from glm5check.reports.history import load_reports

Key = tuple[str, frozenset[tuple[str, str]]]
"""Name of a quantity and what it was measured on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Samples of one or more runs on one machine. `fingerprint` is that of the newest."""

    source: str
    nights: int
    fingerprint: Mapping[str, str]
    measurements: Mapping[Key, Measurement]

    def samples(self, like: Measurement) -> tuple[float, ...]:
        """Samples of the same quantity; empty where the baseline has none."""
        found = self.measurements.get(key_of(like))
        return found.samples if found else ()


def read_baseline(path: Path) -> Baseline:
    """Read a report.json, or a directory of them.

    Raises ReportError where there is none, FingerprintError where they come from different machines or models.
    """
    reports = load_reports(path)
    for report in reports[:-1]:
        require_same_machine(report.fingerprint, reports[-1].fingerprint)
    every = (measurement for report in reports for measurement in report.measurements)
    return Baseline(
        source=str(path),
        nights=len(reports),
        fingerprint=reports[-1].fingerprint,
        measurements=pooled(every),
    )


def pooled(measurements: Iterable[Measurement]) -> dict[Key, Measurement]:
    """One measurement a quantity, with the samples of all of them in order."""
    found: dict[Key, Measurement] = {}
    for one in measurements:
        before = found.get(key_of(one))
        found[key_of(one)] = replace(one, samples=before.samples + one.samples) if before else one
    return found


def key_of(measurement: Measurement) -> Key:
    """What makes two measurements the same quantity."""
    return measurement.name, frozenset(measurement.where.items())
