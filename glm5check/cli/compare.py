"""`glm5check compare BEFORE AFTER`: what got slower or faster between two runs, beyond noise."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from glm5check.checks.throughput import no_regression
from glm5check.fingerprint import require_same_machine
from glm5check.records import Finding, Measurement, Outcome
from glm5check.reports.baseline import Baseline, read_baseline

EXIT_RIGHT, EXIT_WRONG, EXIT_UNKNOWN = 0, 1, 2
_COLOURS = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.INCONCLUSIVE: "yellow"}


@click.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True))
@click.argument("after", type=click.Path(path_type=Path, exists=True))
def compare(before: Path, after: Path) -> None:
    """Compare the speeds of BEFORE and AFTER, each a report.json or a directory of them.

    A quantity is worse when Mann-Whitney's test says so and the typical loss is 2 % or more; it is all right when a
    loss of 5 % is excluded. Both must come from one kind of machine and one model. Exit code 0: nothing got worse,
    1: something did, 2: could not tell.
    """
    old, new = read_baseline(before), read_baseline(after)
    require_same_machine(old.fingerprint, new.fingerprint)
    findings = compared(old, new)
    Console(width=None if sys.stdout.isatty() else 160).print(_table(findings, old, new))
    for finding in findings:
        if finding.outcome is Outcome.FAILED:
            click.echo(str(finding))
    sys.exit(_exit_code(findings))


def compared(old: Baseline, new: Baseline) -> list[Finding]:
    """One finding a quantity that either run measured, in the order of the newer run."""
    missing = [_emptied(one) for key, one in old.measurements.items() if key not in new.measurements]
    return [
        finding
        for measurement in (*new.measurements.values(), *missing)
        for finding in no_regression(measurement, old.samples(measurement), baseline={})
    ]


def _emptied(one: Measurement) -> Measurement:
    return Measurement(name=one.name, unit=one.unit, samples=(), higher_is_better=one.higher_is_better, where=one.where)


def _table(findings: list[Finding], old: Baseline, new: Baseline) -> Table:
    table = Table(title=f"{old.source} ({old.nights} runs) -> {new.source} ({new.nights} runs)")
    for column in ("quantity", "verdict", "what was measured"):
        table.add_column(column)
    for finding in findings:
        name = " ".join(finding.where.values())
        table.add_row(name, f"[{_COLOURS[finding.outcome]}]{finding.outcome}[/]", finding.got)
    return table


def _exit_code(findings: list[Finding]) -> int:
    outcomes = {finding.outcome for finding in findings}
    if Outcome.FAILED in outcomes:
        return EXIT_WRONG
    return EXIT_UNKNOWN if Outcome.INCONCLUSIVE in outcomes or not outcomes else EXIT_RIGHT
