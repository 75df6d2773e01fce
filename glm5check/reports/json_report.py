"""report.json: the whole report as JSON with a version, written and read with the same types."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from glm5check.errors import ReportError
from glm5check.reports.model import SCHEMA, Report

FILE: Final = "report.json"
MAX_BYTES: Final = 1 << 30


class _Version(msgspec.Struct):
    schema: int


def render(report: Report) -> bytes:
    """Indented UTF-8, so that two reports can be compared with diff."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def read(path: Path) -> Report:
    """Raises ReportError if the file cannot be read, is no report, or has a schema that this program does not know."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ReportError(f"the report is larger than {MAX_BYTES >> 30} GiB", where=str(path))
        text = path.read_bytes()
    except OSError as error:
        raise ReportError(
            f"there is no report to read: {error.strerror}", where=str(path), do="give a report.json of --glm5-report"
        ) from None
    try:
        schema = msgspec.json.decode(text, type=_Version).schema
        if schema != SCHEMA:
            raise ReportError(
                f"the report has schema {schema}, this program reads {SCHEMA}",
                where=str(path),
                do="read it with the version of glm5check that wrote it",
            )
        return msgspec.json.decode(text, type=Report)
    except msgspec.MsgspecError as error:
        raise ReportError(f"the file is no report: {error}", where=str(path)) from None
