"""`glm5check selfcheck`: does the suite catch what it is there for, and stay silent on healthy servers?"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from glm5check.reports import matrix as matrices
from glm5check.reports import writing
from glm5check.reports.matrix import Detection, Matrix
from glm5check.selfcheck import healthy, registry, score
from glm5check.selfcheck.campaign import Campaign, exit_code

OUT = "glm5-selfcheck"


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="One fault for each place that faults are seeded in: a minute.")
@click.option("--healthy", "healthy_runs", type=click.IntRange(0, 1000), metavar="N",
              help=f"Runs on healthy servers. Default: {healthy.RUNS}, or none with NAME or --quick.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=OUT, show_default=True,
              help="Directory of what is done; a campaign goes on there.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Runs at a time.")
@click.option("--again", is_flag=True, help="Run what is done already, too.")
@click.option("--write-score", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="PAGE",
              help="Run nothing; put the score of the matrix in --out into this page.")  # fmt: skip
def selfcheck(
    names: tuple[str, ...],
    quick: bool,
    healthy_runs: int | None,
    out: Path,
    jobs: int,
    again: bool,
    write_score: Path | None,
) -> None:
    """Seed faults, one by one or those of the given NAMEs, and see whether the test named for each one fails.

    Each runs in a pytest of its own, some beside a server of their own: an hour for all on two cores. What is done is
    kept in --out and not run again while the suite is the same, so Ctrl-C costs one run. Writes matrix.json and
    matrix.html there.

    Exit code: 0 all caught and no false alarm, 1 one escaped or a healthy server failed, 2 some say nothing, or it was
    interrupted.
    """
    if write_score is not None:
        score.write(write_score, matrices.read(out / matrices.FILE))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    faults = registry.chosen((*names, *registry.QUICK) if quick else names)
    usual = 0 if names or quick else healthy.RUNS
    variants = healthy.variants(usual if healthy_runs is None else healthy_runs)
    campaign = Campaign(faults=faults, variants=variants, out=out, jobs=jobs, again=again, say=_say)
    try:
        matrix = campaign.run()
    except KeyboardInterrupt:
        _say(f"interrupted; what is done is in {out}")
        sys.exit(2)
    page = writing.write_matrix(matrix, out)
    _print(matrix, {fault.name for fault in faults})
    _say(f"as a page: {page}")
    sys.exit(exit_code(matrix, [fault.name for fault in faults], [variant.name for variant in variants]))


def _say(line: str) -> None:
    print(line, flush=True)  # a line a minute, often into a file


def _print(matrix: Matrix, names: set[str]) -> None:
    """A row a fault that was asked for, and what healthy servers gave."""
    click.echo()
    for cell in matrix.faults:
        if cell.name in names:
            why = f"  ({cell.why})" if cell.why else ""
            click.echo(f"{cell.outcome:18} {cell.seeded_in:11} {cell.seconds:5.0f} s  {cell.name}{why}")
            if cell.outcome is not Detection.NEEDS_GPU:
                click.echo(f"{'':38} {cell.expected}")
    click.echo(f"healthy: {len(matrix.healthy)} runs, {len(matrix.false_alarms)} false alarms")
