"""`glm5check report`: make a run's report again from its journal, and keep it in a history."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from glm5check.errors import ReportError
from glm5check.reports import detection, history, journal, json_report, writing
from glm5check.reports import matrix as matrices
from glm5check.reports.model import Report
from glm5check.reports.summary import Verdict, summarise

_EXIT: Final = {Verdict.GOOD: 0, Verdict.BAD: 1, Verdict.OPEN: 2}


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--history",
    "kept",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of earlier nights: this one is added to it, and the page shows trends.",
)
def report(directory: Path, kept: Path | None) -> None:
    """Write report.json, report.html and report.md in DIRECTORY from what a run with --glm5-report DIRECTORY left.

    Works on a run that was killed too, and says so. Of a directory of `glm5check selfcheck`, writes matrix.html.

    Exit code: 0 all good, 1 something failed, 2 not decided.
    """
    if is_selfcheck(directory):
        matrix = matrices.read(directory / matrices.FILE)
        click.echo(f"wrote {writing.write_matrix(matrix, directory)}", err=True)
        click.echo(detection.sentence(matrix))
        sys.exit(_EXIT[detection.verdict(matrix)])
    made = read_run(directory)
    nights: list[Report] = []
    if kept is not None:
        history.append(made, kept)
        nights = history.with_this(made, history.load_reports(kept))
    for path in writing.write(made, directory, nights):
        click.echo(f"wrote {path}", err=True)
    summary = summarise(made)
    for line in (*summary.notes, summary.sentence):
        click.echo(line)
    sys.exit(_EXIT[summary.verdict])


def is_selfcheck(directory: Path) -> bool:
    """Whether it holds a detection matrix and no run."""
    return (directory / matrices.FILE).is_file() and not (directory / journal.JOURNAL).is_file()


def read_run(directory: Path) -> Report:
    """The run's journal; its report.json where the journal was not kept. Raises ReportError if neither is there."""
    if (directory / journal.JOURNAL).is_file():
        return journal.build(journal.read(directory / journal.JOURNAL))
    if (directory / json_report.FILE).is_file():
        return json_report.read(directory / json_report.FILE)
    raise ReportError(
        f"there is neither {journal.JOURNAL} nor {json_report.FILE}",
        where=str(directory),
        do="give the directory that --glm5-report wrote to",
    )
