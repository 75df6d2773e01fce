"""`glm5check audit FILE`: is the GGUF set whole, and what will vLLM make of it?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from glm5check.checkpoint.audit import survey
from glm5check.checkpoint.contents import Depth
from glm5check.checkpoint.contents import Progress as Report
from glm5check.checkpoint.index import GgufSet, part_files
from glm5check.checks import checkpoint as checks
from glm5check.errors import CheckpointError
from glm5check.records import Finding, Outcome

EXIT_RIGHT, EXIT_WRONG, EXIT_UNKNOWN = 0, 1, 2


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--config", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Directory of config.json."
)
@click.option("--tp", "ranks", type=click.IntRange(1, 1024), default=8, show_default=True, help="Ranks to serve on.")
@click.option("--depth", type=click.Choice([depth.value for depth in Depth]), default=Depth.WEIGHTS.value,
              show_default=True, help="Read headers only, every scale, or every weight.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print findings as JSON.")
def audit(file: Path, config: Path | None, ranks: int, depth: str, as_json: bool) -> None:
    """Check the GGUF set that FILE, any part of it, belongs to. Nothing is loaded; memory stays under 1 GiB.

    Without --config, a config.json beside FILE is taken. Exit code 0: right, 1: wrong, 2: could not tell.
    """
    if not any(part.exists() for part in (file, *part_files(file))):
        raise CheckpointError("the file does not exist", where=str(file), do="check the path")
    findings = examine(file, config, ranks, Depth(depth), quiet=as_json)
    click.echo(_json(findings) if as_json else _text(findings))
    sys.exit(exit_code(findings))


def examine(file: Path, config: Path | None, ranks: int, depth: Depth, *, quiet: bool = True) -> list[Finding]:
    """Every finding about the set of `file`. A file that is no GGUF is a finding too."""
    if config is None and (file.parent / "config.json").exists():
        config = file.parent
    try:
        model = GgufSet.read(file)
        with _progress(sum(header.size for header in model.headers), quiet or depth is Depth.TABLE) as report:
            return checks.audit(survey(model, config, depth=depth, progress=report), ranks)
    except CheckpointError as error:
        return [
            Finding(
                check="checkpoint.readable",
                outcome=Outcome.FAILED,
                got=error.what,
                want="well-formed files",
                where={"file": error.where},
                cause=error.do,
            )
        ]


def exit_code(findings: list[Finding]) -> int:
    """1 if any check failed, else 2 if any could not tell, else 0."""
    outcomes = {finding.outcome for finding in findings}
    if Outcome.FAILED in outcomes:
        return EXIT_WRONG
    return EXIT_UNKNOWN if Outcome.INCONCLUSIVE in outcomes or not findings else EXIT_RIGHT


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Report]:
    """A bar on the standard error stream, if that is a terminal."""
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet or not sys.stderr.isatty()) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda count: bar.advance(task, count)


def _json(findings: list[Finding]) -> str:
    return msgspec.json.format(msgspec.json.encode(findings)).decode()


def _text(findings: list[Finding]) -> str:
    lines = [
        f"{finding.outcome.value:12} "
        + (f"{finding.check}: {finding.got}" if finding.outcome is Outcome.PASSED else str(finding))
        for finding in findings
    ]
    counts = [sum(f.outcome is outcome for f in findings) for outcome in Outcome]
    summary = ", ".join(f"{count} {outcome.value}" for outcome, count in zip(Outcome, counts, strict=True))
    return "\n".join([*lines, summary])
