"""What this machine allows a workload: a floor, from floors.toml or derived, and the bound that nothing can pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from glm5check.calibration import gpu_read_bandwidth, read_bandwidth
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
from glm5check.glm5.dimensions import Dimensions
from glm5check.roofline import Bound, Roofline, Speeds, StoredTensor, step_bytes
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
            return from_pace(self.reference, series.pace, same_cpu=self.same_cpu)
        if self.roofline is None or not self.machine.gpus:
            return None
        limit = single_stream_bound(self.roofline)
        return from_bound(limit.tokens_per_second, str(limit))

    def entries(self, measure: str, kind: Kind) -> tuple[Floor, ...]:
        """The profile's numbers for one measure, lowest first; empty without a profile."""
        return of_measure(self.profile, measure, kind)


def single_stream_bound(roofline: Roofline) -> Bound:
    """The bound of the workload SINGLE, halfway through its answer."""
    return roofline.at(SHORT_TOKENS + DECODE_TOKENS // 2)


def measure_roofline(
    tensors: Iterable[StoredTensor], dimensions: Dimensions, *, ranks: int, on_cpu: bool, all_reduce: float
) -> Roofline | None:
    """The roofline of a model on `ranks` ranks of this machine, whose memory bandwidth is measured now.

    `all_reduce` is the seconds that one takes (0 where nobody measured it: the bound is then higher than it need be,
    never too low). CPUs serve float32 and dense attention, GPUs bfloat16 caches. None where the bandwidth of a GPU
    cannot be measured.
    """
    stored = tuple(tensors)
    element, sparse = (4, False) if on_cpu else (2, True)
    read = step_bytes(stored, dimensions, ranks=ranks, context=1, cache_element=element, sparse=sparse)
    bandwidth = read_bandwidth(int(read.total), ranks) if on_cpu else gpu_read_bandwidth()
    if bandwidth is None:
        return None
    return Roofline(
        tensors=stored,
        dimensions=dimensions,
        ranks=ranks,
        speeds=Speeds(bandwidth=bandwidth, all_reduce=all_reduce),
        cache_element=element,
        sparse=sparse,
    )
