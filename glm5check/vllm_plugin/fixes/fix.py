"""What a fix is, and what became of the fixes that were asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One upstream fault and the way around it.

    `is_needed` looks at the installed source or its behaviour, never at a version number, and is False once `apply` was
    called. `apply` changes this process only.
    """

    name: str
    what: str
    """What is wrong, and what a user would see."""
    versions: str
    """Where it was found; not what decides."""
    is_needed: Callable[[], bool]
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """Names of fixes. `left_out` are faults that the installed versions have and that stay in."""

    applied: tuple[str, ...]
    left_out: tuple[str, ...]
    not_needed: tuple[str, ...]

    def __str__(self) -> str:
        def join(names: tuple[str, ...]) -> str:
            return ", ".join(names) or "none"

        return f"{join(self.applied)}; needed but left out: {join(self.left_out)}; not needed: {join(self.not_needed)}"
