"""What our load client and another one measured side by side: medians, the verdict, and its line of the table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glm5check.checks import throughput
from glm5check.records import Finding, Measurement

Progress = Callable[[str], None]


def medians(ours: Measurement, theirs: Measurement, whose: str) -> str:
    values = [f"{np.median(one.samples):.4g}" for one in (ours, theirs)]
    where = "".join(f"{key}: {value}, " for key, value in ours.where.items())
    return f"{where}{ours.name}: {values[0]} ours, {values[1]} {whose}"


def judged(ours: Measurement, theirs: Measurement, whose: str, progress: Progress) -> Finding:
    [finding] = throughput.clients_agree(ours, theirs)
    progress(f"{medians(ours, theirs, whose)}: {finding.got}, {finding.outcome}")
    return finding
