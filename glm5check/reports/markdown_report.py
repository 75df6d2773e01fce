"""report.md: the same verdict for a pull request or a job's summary page."""

from __future__ import annotations

import html
import re
from typing import Final

from glm5check.records import Finding, Outcome
from glm5check.reports.model import Case, CaseOutcome, Report, where_text
from glm5check.reports.summary import Verdict, alike, by_reason, shorten, summarise

FILE: Final = "report.md"
MAX_SHOWN: Final = 30
"""Failed tests, and kinds of failure of one; GitHub cuts a job summary at 1 MiB."""
MAX_ALIKE: Final = 5
"""Places of one kind of failure."""
MAX_TEXT: Final = 600
_SIGNS: Final = {Verdict.GOOD: "✅", Verdict.BAD: "❌", Verdict.OPEN: "⚠️"}
_SPECIAL: Final = re.compile(r"([\\`*_\[\]|~#!])")


def render(report: Report) -> str:
    """Markdown in GitHub's dialect; texts that are not ours are escaped."""
    summary = summarise(report)
    lines = [f"## {_SIGNS[summary.verdict]} {escape(summary.sentence)}", ""]
    lines += [f"> {escape(note)}\n" for note in summary.notes]
    if summary.rows:
        lines += ["| concern | verdict | headline number | evidence |", "|---|---|---|---|"]
        lines += [
            f"| {escape(row.concern)} | {_SIGNS[row.verdict]} {row.verdict} | {escape(row.headline)} | "
            f"{escape(row.evidence)} |"
            for row in summary.rows
        ]
    failed = report.of(CaseOutcome.FAILED, CaseOutcome.ERROR)
    if failed:
        lines += ["", "### What failed", ""]
    for case in failed[:MAX_SHOWN]:
        lines += _failed(case)
    if len(failed) > MAX_SHOWN:
        lines.append(f"{len(failed) - MAX_SHOWN} more failed; report.json has all.")
    undecided = report.of(CaseOutcome.INCONCLUSIVE, CaseOutcome.SKIPPED, CaseOutcome.UNFINISHED)
    if undecided:
        lines += ["", f"<details><summary>{len(undecided)} lacked evidence</summary>", ""]
        for reason, tests in by_reason(undecided).items():
            lines.append(f"- {escape(reason)}")
            lines += [f"  - {escape(test)}" for test in tests]
        lines += ["", "</details>"]
    if report.detection:
        lines += ["", f"What this suite itself catches: {escape(report.detection)}"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """`text` on one line, shown as it is: neither HTML nor Markdown of its own."""
    return _SPECIAL.sub(r"\\\1", html.escape(shorten(text, MAX_TEXT), quote=False))


def _failed(case: Case) -> list[str]:
    lines = [f"**{escape(case.nodeid)}**", ""]
    failures = alike(finding for finding in case.findings if finding.outcome is Outcome.FAILED)
    for group in failures[:MAX_SHOWN]:
        lines += _group(group)
    if not failures:
        lines.append(f"- {escape(case.message)}")
    if len(failures) > MAX_SHOWN:
        lines.append(f"- {len(failures) - MAX_SHOWN} more kinds of failure")
    if case.repeat:
        lines += ["", "to repeat:", "", f"    {' '.join(case.repeat.split())}"]
    return [*lines, ""]


def _group(group: list[Finding]) -> list[str]:
    first = group[0]
    lines = [f"- {escape(first.check)} should be {escape(first.want)}"]
    for finding in group[:MAX_ALIKE]:
        place = f" \\[{escape(where_text(finding.where))}\\]" if finding.where else ""
        lines.append(f"  - got {escape(finding.got)}{place}")
    if len(group) > MAX_ALIKE:
        lines.append(f"  - and {len(group) - MAX_ALIKE} more alike")
    if first.cause:
        lines.append(f"  - likely cause: {escape(first.cause)}")
    return lines
