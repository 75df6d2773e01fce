"""report.html: one self-contained page, from a file, without a network, in light and dark, on a phone too.

What is not ours (model output, names, paths) goes through the template's escaping; only our own SVG does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from glm5check.records import Finding, Measurement, Outcome
from glm5check.reports.history import trends as trends_of
from glm5check.reports.model import Case, CaseOutcome, Report, where_text
from glm5check.reports.page import environment
from glm5check.reports.pictures import draw, draw_trends
from glm5check.reports.summary import Verdict, alike, by_reason, summarise

FILE: Final = "report.html"
MAX_SHOWN: Final = 100
"""Tests shown of one kind, and kinds of failure of one test; report.json has all."""
MAX_ALIKE: Final = 8
"""Places shown of one kind of failure."""
_WORDS: Final = {Verdict.GOOD: "Passed", Verdict.BAD: "Failed", Verdict.OPEN: "Not decided"}


def render(report: Report, nights: Sequence[Report] = ()) -> str:
    """The page. `nights` are earlier reports and this one, oldest first; with them it has trends."""
    trends = trends_of(nights) if len(nights) > 1 else []
    pages = environment()
    pages.filters["failures"] = _failures
    pages.filters["where_text"] = where_text
    pages.globals |= {"Outcome": CaseOutcome, "MAX_SHOWN": MAX_SHOWN, "MAX_ALIKE": MAX_ALIKE}
    summary = summarise(report)
    return pages.get_template("report.html.jinja").render(
        report=report,
        summary=summary,
        word="Interrupted" if report.interruption and summary.verdict is Verdict.OPEN else _WORDS[summary.verdict],
        failed=report.of(CaseOutcome.FAILED, CaseOutcome.ERROR),
        undecided=by_reason(report.of(CaseOutcome.INCONCLUSIVE, CaseOutcome.SKIPPED, CaseOutcome.UNFINISHED)),
        known=by_reason(report.of(CaseOutcome.KNOWN)),
        pictures=draw(list(report.measurements), list(report.findings), trends),
        trends=draw_trends(trends),
        measurements=[_measured(one) for one in report.measurements],
    )


def _failures(case: Case) -> list[list[Finding]]:
    return alike(finding for finding in case.findings if finding.outcome is Outcome.FAILED)


def _measured(one: Measurement) -> tuple[str, ...]:
    numbers = (median(one.samples), min(one.samples), max(one.samples))
    return one.name, where_text(one.where), *(f"{number:,.5g}" for number in numbers), one.unit, str(len(one.samples))
