"""The three ways in which a check of a checkpoint ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from glm5check.records import Finding, Outcome


def passed(check: str, got: str, want: str) -> list[Finding]:
    return [Finding(check=f"checkpoint.{check}", outcome=Outcome.PASSED, got=got, want=want)]


def unknown(check: str, got: str, want: str) -> list[Finding]:
    """The evidence is missing."""
    return [Finding(check=f"checkpoint.{check}", outcome=Outcome.INCONCLUSIVE, got=got, want=want)]


def failed(check: str, got: str, want: str, where: Mapping[str, str] | None = None, *, cause: str = "") -> Finding:
    return Finding(
        check=f"checkpoint.{check}", outcome=Outcome.FAILED, got=got, want=want, where=where or {}, cause=cause
    )


def some_of(names: Iterable[str], shown: int = 4) -> str:
    """The first few of `names` and how many there are."""
    names = list(names)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
