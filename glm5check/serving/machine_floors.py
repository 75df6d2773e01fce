"""The floor of a measured workload on this machine: the entry in floors.toml, or one that is derived here and now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glm5check.floors import (
    Floor,
    Floors,
    HostReference,
    Kind,
    Machine,
    Profile,
    from_bound,
    from_pace,
    of_measure,
    profile_for,
)
from glm5check.floors import host_reference as reference_for
from glm5check.roofline import Roofline
from glm5check.serving.rounds import Series
from glm5check.serving.workloads import DECODE_TOKENS, SHORT_TOKENS, SINGLE


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFloors:
    """Floors of one machine. `roofline` is None where it cannot be known, `reference` where no CPU serves."""

    machine: Machine
    profile: Profile | None
    roofline: Roofline | None
    reference: HostReference | None
    same_cpu: bool

    @classmethod
    def of(
        cls, floors: Floors, machine: Machine, *, roofline: Roofline | None, cpu: str, cpus: int, ranks: int | None
    ) -> MachineFloors:
        """Choose the profile; on a machine without GPUs also the CPU to calibrate against."""
        on_cpu = not machine.gpus and ranks is not None
        reference, same = reference_for(floors, cpu, cpus, ranks or 0) if on_cpu else (None, False)
        return cls(
            machine=machine,
            profile=profile_for(floors, machine),
            roofline=roofline,
            reference=reference,
            same_cpu=same,
        )

    def floor(self, series: Series) -> Floor | None:
        """The floor that decides; of several entries the highest. Only single-stream decode has derived ones."""
        entries = self.entries(series.workload.name, Kind.FLOOR)
        if entries:
            return entries[-1]
        if series.workload.name != SINGLE:
            return None
        if self.reference is not None and series.paces:
            return from_pace(self.reference, float(np.median(series.paces)), same_cpu=self.same_cpu)
        if self.roofline is None or not self.machine.gpus:
            return None
        limit = self.roofline.at(SHORT_TOKENS + DECODE_TOKENS // 2)
        parts = ", ".join(f"{name} {seconds * 1e3:.3g} ms" for name, seconds in limit.parts.items())
        return from_bound(limit.tokens_per_second, parts)

    def entries(self, measure: str, kind: Kind) -> tuple[Floor, ...]:
        """The profile's numbers for one measure, lowest first; empty without a profile."""
        return of_measure(self.profile, measure, kind)
