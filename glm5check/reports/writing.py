"""Writes a report's files into its directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from glm5check.errors import ReportError
from glm5check.reports import html_report, json_report, markdown_report, matrix_report
from glm5check.reports.matrix import Matrix
from glm5check.reports.model import Report


def write(report: Report, directory: Path, nights: Sequence[Report] = ()) -> list[Path]:
    """report.json, report.md and report.html, each whole or not at all, the data first. Returns their paths.

    `nights` are as in `html_report.render`. Raises ReportError if the directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [
            replace(directory / json_report.FILE, json_report.render(report)),
            replace(directory / markdown_report.FILE, markdown_report.render(report).encode()),
            replace(directory / html_report.FILE, html_report.render(report, nights).encode()),
        ]
    except OSError as error:
        raise ReportError(
            f"the report cannot be written: {error.strerror}",
            where=str(directory),
            do="give a directory that you may write to",
        ) from None


def write_matrix(matrix: Matrix, directory: Path) -> Path:
    """matrix.html. Returns its path. Raises ReportError if the directory cannot be written."""
    try:
        return replace(directory / matrix_report.FILE, matrix_report.render(matrix).encode())
    except OSError as error:
        raise ReportError(f"the page cannot be written: {error.strerror}", where=str(directory)) from None


def replace(path: Path, content: bytes) -> Path:
    """A reader of `path` sees the old file or the new one, never half of one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    Path(name).chmod(0o644)
    Path(name).replace(path)
    return path
