"""Records of what GPUs and a server did: made by `trace`, judged by `checks`, rendered by `reports`.

All times are microseconds. `start_us` of kernels is on the profiler's GPU timeline, of steps on its CPU timeline; both
are converted to one clock by the profiler, but clocks of two ranks are never compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class GraphMode(StrEnum):
    """How a step's kernels were launched, in vLLM's words; UNKNOWN where the step left no kernel."""

    FULL = "FULL"
    PIECEWISE = "PIECEWISE"
    NONE = "NONE"
    UNKNOWN = "UNKNOWN"


class LaunchKind(StrEnum):
    """What launched a kernel, by the runtime event that has its correlation id."""

    GRAPH = "graph"
    EAGER = "eager"
    ORPHAN = "orphan"
    """No launch event in the trace: the launch predates the profile, or was lost."""
    CONTRADICTION = "contradiction"
    """The launch event and the kernel's graph node id say opposite things."""


class Family(StrEnum):
    """Implementations of a collective, as kernel names tell them apart."""

    NCCL = "NCCL"
    NCCL_SYMMETRIC = "NCCL symmetric memory"
    VLLM_CUSTOM = "vLLM custom"
    FLASHINFER_FUSED = "FlashInfer all-reduce + RMSNorm"
    FLASHINFER = "FlashInfer"
    TORCH_SYMMETRIC = "torch symmetric memory"
    QUICK_REDUCE = "quick reduce"


class Operation(StrEnum):
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    BROADCAST = "broadcast"
    SEND_RECV = "send-receive"
    UNKNOWN = "unknown"
    """A generic NCCL kernel: its name does not say what it did."""


class Work(StrEnum):
    """What a kernel's time is spent on; where kernels overlap, time goes to the first of these that runs."""

    MOE = "moe"
    ATTENTION = "attention"
    GEMM = "gemm"
    OTHER = "other"
    ALL_REDUCE = "all-reduce"
    COLLECTIVE = "other collectives"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective's kernel on one rank."""

    name: str
    family: Family
    operation: Operation
    launch: LaunchKind
    start_us: float
    duration_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """One execution of the model on one rank, with every kernel that was launched for it.

    `graph_launches` counts `cudaGraphLaunch` calls. `period_us` runs from this step's first kernel to the next step's
    first kernel, None for the last step. `busy_us` divides the period's covered part by `Work` without counting an
    overlap twice; what it leaves of the period is gaps. `cache_writes` counts kernels that write a layer's KV cache.
    """

    index: int
    start_us: float
    prefill_requests: int
    decode_requests: int
    decode_tokens: int
    mode: GraphMode
    kernels: int
    graph_launches: int
    collectives: tuple[Collective, ...]
    cache_writes: int
    period_us: float | None
    busy_us: Mapping[Work, float] = field(default_factory=dict)

    @property
    def all_reduces(self) -> tuple[Collective, ...]:
        return tuple(kernel for kernel in self.collectives if kernel.operation is Operation.ALL_REDUCE)

    @property
    def is_decode(self) -> bool:
        """Whether only decoding requests ran in it."""
        return self.prefill_requests == 0 and self.decode_requests > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """What one rank's profile holds: every step in launch order, and which of them are steady decode steps.

    `steady` are the decode steps whose neighbours are decode steps too: the edges of every run of decode steps are
    dropped. `orphans` counts kernels without a launch event, `steady_orphans` those of them that are collectives and
    ran within the steady steps. `early_kernels` counts kernels that start before their launch does.
    """

    source: str
    rank: int
    world_size: int | None
    device: str
    steps: tuple[DecodeStep, ...]
    steady: tuple[DecodeStep, ...]
    kernels: int
    orphans: int
    steady_orphans: int
    early_kernels: int
    vllm_version: str = ""
    nccl_version: str = ""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One row of the `--cudagraph-metrics` table: how often a batch of this size ran in this mode."""

    tokens: int
    padded_tokens: int
    mode: GraphMode
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a vLLM server's log says about graphs and collectives; None or empty where it says nothing.

    `requested_mode` is the configuration's, before a worker may have downgraded it. `planned` and `captured` count
    graphs by mode as the worker announced and made them. `downgrades`, `graphs_off`, `capture_notes` (changed sizes),
    `all_reduce_notes` and `slow_paths` are log lines, verbatim.
    `all_reduce_backends` are those of the tensor-parallel group in dispatch order. `dispatches` sums the tables of
    `--cudagraph-metrics`.
    """

    source: str = "server log"
    version: str = ""
    runner: str = ""
    requested_mode: str | None = None
    enforce_eager: bool | None = None
    tensor_parallel: int | None = None
    capture_sizes: tuple[int, ...] = ()
    planned: Mapping[str, int] = field(default_factory=dict)
    captured: Mapping[str, int] = field(default_factory=dict)
    capture_finished: bool = False
    graphs_off: tuple[str, ...] = ()
    downgrades: tuple[str, ...] = ()
    capture_notes: tuple[str, ...] = ()
    attention_backend: str = ""
    all_reduce_backends: tuple[str, ...] = ()
    all_reduce_notes: tuple[str, ...] = ()
    fused_all_reduce: bool = False
    nccl_version: str = ""
    kv_cache_tokens: int | None = None
    kv_cache_gib: float | None = None
    async_scheduling: bool | None = None
    slow_paths: tuple[str, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()


@dataclass(frozen=True, slots=True)
class NcclChoice:
    """What NCCL said it would run for a collective of this size: its TUNING line."""

    operation: str
    size_bytes: int
    algorithm: str
    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCounts:
    """Host calls of one rank's NCCL log, within communicators of at least two ranks, in a window of it.

    A call is logged when the host makes it: at warm-up, capture and eager execution, never when a graph replays.
    `total_*` count the whole log, the others the window; `window` says in words what the window is.
    """

    source: str
    rank: int | None
    window: str
    all_reduces: int
    all_gathers: int
    total_all_reduces: int
    total_all_gathers: int
    choices: tuple[NcclChoice, ...] = ()
    transports: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The configuration that `/server_info` reports: the front end's, from before a worker may have downgraded it."""

    source: str = "/server_info"
    version: str = ""
    requested_mode: str | None = None
    enforce_eager: bool | None = None
    tensor_parallel: int | None = None
    custom_all_reduce_off: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything that was recorded of one server while it decoded; what was not recorded is None or empty.

    `inter_token_us` is the server's own mean time between tokens, without a profiler if it was read before one started.
    `fingerprint` is of the run that the records come from; `expected_ranks` is how many ranks there were by the word
    of whoever took the recording, None to go by what the records say themselves.
    """

    source: str
    expected_ranks: int | None = None
    ranks: tuple[RankTrace, ...] = ()
    facts: ServerFacts | None = None
    info: ServerInfo | None = None
    nccl: tuple[NcclCounts, ...] = ()
    inter_token_us: float | None = None
    fingerprint: Mapping[str, str] = field(default_factory=dict)
