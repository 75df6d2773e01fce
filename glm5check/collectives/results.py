"""Records of the all-reduce pre-flight, and their JSON. Times in microseconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

from glm5check.errors import SetupError


class Status(StrEnum):
    """How a combination's run ended. UNAVAILABLE: it cannot be used here, and says why."""

    RIGHT = "right"
    WRONG = "wrong"
    HUNG = "hung"
    CRASHED = "crashed"
    UNAVAILABLE = "unavailable"


class Mode(StrEnum):
    EAGER = "eager"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Combination:
    """A backend by vLLM's name for it and, for NCCL, the algorithm and protocol forced on it (empty: its choice)."""

    backend: str
    algorithm: str = ""
    protocol: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """What the processes' environment needs for it, on top of the server's own."""
        forced = {"NCCL_ALGO": self.algorithm, "NCCL_PROTO": self.protocol}
        environment = {name: value for name, value in forced.items() if value}
        if self.backend == "NCCL_SYMM_MEM":
            environment |= {"VLLM_USE_NCCL_SYMM_MEM": "1", "NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "1"}
        return environment

    def __str__(self) -> str:
        return " ".join(word for word in (self.backend, self.algorithm, self.protocol) if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One size in one mode: over the samples, the median and the 99th percentile of the slowest rank's time, and the
    median of the fastest rank's (the transfer without the wait for a late rank)."""

    size_bytes: int
    mode: Mode
    median_us: float
    p99_us: float
    net_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One wrong answer: where it was, and what it looks like."""

    size_bytes: int
    mode: Mode
    rank: int
    round: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinationResult:
    """What one combination's own set of processes found. `detail` is the reason, or the ranks' stacks of a hang."""

    combination: Combination
    status: Status
    detail: str = ""
    latencies: tuple[Latency, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    refused_bytes: tuple[int, ...] = ()

    def latency(self, size_bytes: int, mode: Mode = Mode.REPLAY) -> Latency | None:
        """The latency of the smallest measured size that is not below `size_bytes`."""
        fitting = [row for row in self.latencies if row.mode is mode and row.size_bytes >= size_bytes]
        return min(fitting, key=lambda row: row.size_bytes, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How this node's GPUs reach each other; `links` maps "0-1" to nvidia-smi's word (NV18, PIX, PHB, NODE, SYS)."""

    gpus: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    no_peer_access: tuple[str, ...] = ()
    numa_nodes: int = 1
    text: str = ""

    @property
    def has_nvlink(self) -> bool:
        """Every pair of GPUs is joined by NVLink."""
        return bool(self.links) and all(link.startswith("NV") for link in self.links.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The whole pre-flight: what it ran on (`device` in torch's word), what each combination did, what follows."""

    ranks: int
    nodes: int
    device: str
    versions: Mapping[str, str]
    topology: Topology
    results: tuple[CombinationResult, ...]
    advice: tuple[str, ...] = ()

    @property
    def is_rehearsal(self) -> bool:
        """It ran without GPUs: its bookkeeping is proved, its times mean nothing."""
        return self.device == "cpu"

    def fastest(self, size_bytes: int) -> tuple[float, CombinationResult] | None:
        """Least net microseconds of a replayed all-reduce of this size, and what gave it; of right combinations only.

        None for a rehearsal, and where nothing right took this size.
        """
        if self.is_rehearsal:
            return None
        right = [one for one in self.results if one.status is Status.RIGHT]
        times = [(row.net_us, one) for one in right if (row := one.latency(size_bytes))]
        return min(times, key=lambda pair: pair[0], default=None)

    def all_reduce_s(self, size_bytes: int) -> float:
        """Seconds of the fastest, 0 where none is known: a bound is then higher than it need be, never too low."""
        fastest = self.fastest(size_bytes)
        return fastest[0] * 1e-6 if fastest else 0.0

    @property
    def is_right(self) -> bool:
        """No combination gave a wrong answer, hung or crashed, and at least one gave right ones."""
        bad = {Status.WRONG, Status.HUNG, Status.CRASHED}
        states = {result.status for result in self.results}
        return Status.RIGHT in states and not states & bad


def to_json(preflight: Preflight) -> str:
    """Indented JSON of the whole result."""
    return msgspec.json.format(msgspec.json.encode(preflight), indent=2).decode()


def from_json(path: Path) -> Preflight:
    """Read a saved result; raises SetupError if it is missing or is not one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Preflight)
    except OSError as error:
        raise SetupError(f"the pre-flight's result cannot be read ({error.strerror})", where=str(path)) from error
    except msgspec.DecodeError as error:
        raise SetupError(
            f"not a pre-flight's result ({error})", where=str(path), do="write one with `glm5check preflight --json`"
        ) from error
