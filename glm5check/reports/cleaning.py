"""Findings and measurements as they may be written: plain types, no secrets, bounded length."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from glm5check.records import Finding, Measurement
from glm5check.redaction import Redactor

MAX_TEXT: Final = 4_000
"""Characters of one text of a finding: enough for any model answer that a reader would read."""
MAX_MESSAGE: Final = 20_000


def finding(given: Finding, redactor: Redactor) -> Finding:
    """`given` with clean texts; numbers that JSON cannot hold (NaN, infinity) stay in the text only."""

    def text(value: str) -> str:
        return redactor.clean(value, MAX_TEXT)

    return replace(
        given,
        got=text(given.got),
        want=text(given.want),
        where={text(str(key)): text(str(value)) for key, value in given.where.items()},
        cause=text(given.cause),
        repeat=text(given.repeat),
        value=_number(given.value),
        bound=_number(given.bound),
    )


def measurement(given: Measurement, redactor: Redactor) -> Measurement:
    """`given` with clean texts. Raises ValueError if it has no sample, or one that is not finite."""
    samples = tuple(map(float, given.samples))
    if not samples or not all(map(math.isfinite, samples)):
        raise ValueError(f"measurement {given.name} needs samples, all of them finite, not {samples[:5]}")
    where = {redactor.clean(str(key)): redactor.clean(str(value), MAX_TEXT) for key, value in given.where.items()}
    return replace(given, samples=samples, where=where)


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
