"""report.json: the whole report as JSON with a version, written and read with the same types."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from glm5check.reports import versioned
from glm5check.reports.model import SCHEMA, Report

FILE: Final = "report.json"
MAX_BYTES: Final = 1 << 30


def render(report: Report) -> bytes:
    """Indented UTF-8, so that two reports can be compared with diff."""
    return versioned.render(report)


def read(path: Path) -> Report:
    """Raises ReportError if the file cannot be read, is no report, or has a schema that this program does not know."""
    return versioned.read(
        path,
        Report,
        schema=SCHEMA,
        what="report",
        largest=(MAX_BYTES, f"{MAX_BYTES >> 30} GiB"),
        hint="give a report.json of --glm5-report",
        other="read it with the version of glm5check that wrote it",
    )
