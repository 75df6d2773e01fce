"""A statement that a check makes about several things: one name and one expectation, an outcome for each thing."""

from __future__ import annotations

from dataclasses import dataclass

from glm5check.records import Finding, Outcome


@dataclass(frozen=True, slots=True)
class Statement:
    """Makes findings of check `check`, which all expect `want`; keyword arguments of a finding say where it is."""

    check: str
    want: str

    def passed(self, got: str, **where: str) -> Finding:
        return Finding(check=self.check, outcome=Outcome.PASSED, got=got, want=self.want, where=where)

    def failed(self, got: str, cause: str = "", **where: str) -> Finding:
        return Finding(check=self.check, outcome=Outcome.FAILED, got=got, want=self.want, where=where, cause=cause)

    def inconclusive(self, got: str, **where: str) -> Finding:
        return Finding(check=self.check, outcome=Outcome.INCONCLUSIVE, got=got, want=self.want, where=where)
