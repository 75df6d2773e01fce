"""How the decode, context and speculative checks make findings: names, pairs, and requests that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from glm5check.checks import causes
from glm5check.checks.causes import Installation
from glm5check.records import Finding, Generation, Outcome, Scores, TokenChoice

Record = TypeVar("Record", Scores, Generation)


def judged(
    check: str,
    right: bool,
    *,
    got: str,
    want: str,
    where: Mapping[str, str],
    cause: str = "",
    value: float | None = None,
    bound: float | None = None,
    unit: str = "",
) -> Finding:
    """A finding that passed or failed; only a failed one keeps its cause."""
    return Finding(
        check=check,
        outcome=Outcome.PASSED if right else Outcome.FAILED,
        got=got,
        want=want,
        where=where,
        cause="" if right else cause,
        value=value,
        bound=bound,
        unit=unit,
    )


def nothing(check: str, why: str) -> Finding:
    """Evidence is missing: inconclusive."""
    return Finding(check=check, outcome=Outcome.INCONCLUSIVE, got=why, want="evidence")


def place(record: Generation | Scores, installation: Installation | None = None, **more: str) -> dict[str, str]:
    """Where a finding about one prompt is."""
    where = {"prompt": record.prompt}
    if installation is not None:
        where["tp"] = str(installation.ranks or "unknown")
    return where | more


def unanswered(check: str, records: Sequence[Generation | Scores]) -> list[Finding]:
    """One failed finding for each request that failed."""
    return [
        judged(
            check, False, got=record.error, want="an answer", where=place(record), cause=causes.of_error(record.error)
        )
        for record in records
        if record.error
    ]


def paired(got: Sequence[Record], want: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Answered records of both sides by prompt name, in the order of `got`."""
    by_name = {record.prompt: record for record in want if not record.error}
    return [(ours, by_name[ours.prompt]) for ours in got if ours.prompt in by_name and not ours.error]


def position_of(tokens: Sequence[TokenChoice], at: int, prompt_ids: Sequence[int]) -> str:
    """`at`-th token of a generation, as its position in the whole context."""
    return f"{len(prompt_ids) + at} (token {at + 1} of {len(tokens)})"
