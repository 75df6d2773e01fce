"""One rank's profile as typed records: the kernels that ran, what launched them, and vLLM's step annotations."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from glm5check.errors import TraceError
from glm5check.trace.events import Event, EventReader, Header

_MAX_RECORDS: Final = 20_000_000
_GRAPH_LAUNCHES: Final = frozenset({"cudaGraphLaunch", "cuGraphLaunch", "cudaGraphLaunch_ptsz", "cuGraphLaunch_ptsz"})
_WANTED: Final = frozenset({"kernel", "cuda_runtime", "cuda_driver", "user_annotation"})
_KERNEL_LAUNCH: Final = re.compile(r"cu(?:da)?Launch(?:Cooperative)?Kernel")
# execute_context_{requests}({tokens})_generation_{requests}({tokens}); since 0.26 a total may come first, and the
# parentheses may hold more than one number.
_STEP: Final = re.compile(r"execute_(?:\d+_)?context_(\d+)\(.*?\)_generation_(\d+)\((?:sq)?(\d+)")


class _Args(msgspec.Struct, gc=False):
    correlation: int | None = None
    graph_node: int | None = msgspec.field(name="graph node id", default=None)


_decode_args = msgspec.json.Decoder(_Args).decode


class Kernel(msgspec.Struct, frozen=True, gc=False):
    """A kernel on the GPU: microseconds on the GPU timeline; `graph_node` is None where the profiler writes no ids."""

    name: str
    start_us: float
    duration_us: float
    correlation: int
    graph_node: int | None

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


class Launch(msgspec.Struct, frozen=True, gc=False):
    """A runtime or driver call that starts kernels: of a whole graph, or of one kernel."""

    start_us: float
    correlation: int
    is_graph: bool


class Annotation(msgspec.Struct, frozen=True, gc=False):
    """vLLM's mark around one execution of the model, on the CPU timeline."""

    start_us: float
    duration_us: float
    prefill_requests: int
    decode_requests: int
    decode_tokens: int


@dataclass(slots=True)
class Profile:
    """Everything of one file that steps are made from, in the order of the file."""

    path: Path
    header: Header = field(default_factory=Header)
    kernels: list[Kernel] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    text_bytes: int = 0


def read_profile(path: Path) -> Profile:
    """Read one rank's profiler trace, plain or gzipped.

    Memory: one piece of the text (at most 4 MiB) and about 150 bytes a kernel. Raises TraceError if the file is empty,
    cut, not a profiler trace, holds numbers that cannot be times, or more records than any decode profile has.
    """
    reader = EventReader(path)
    profile = Profile(path)
    names: dict[str, str] = {}
    for events in reader:
        for event in events:
            if event.cat in _WANTED:
                _keep(event, profile, names)
        if len(profile.kernels) + len(profile.launches) > _MAX_RECORDS:
            raise TraceError(
                f"more than {_MAX_RECORDS:,} kernels and launches",
                where=str(path),
                do="profile 10 to 30 decode steps, not more",
            )
    profile.header = reader.header
    profile.text_bytes = reader.text_bytes
    return profile


def _keep(event: Event, profile: Profile, names: dict[str, str]) -> None:
    """Turn an event of a wanted category into its record, if it has one."""
    category = event.cat
    if category == "kernel":
        args = _args_of(event, profile.path)
        name = names.setdefault(event.name, event.name)
        correlation = -1 if args.correlation is None else args.correlation
        profile.kernels.append(Kernel(name, event.ts, event.dur, correlation, args.graph_node))
    elif category in ("cuda_runtime", "cuda_driver"):
        is_graph = event.name in _GRAPH_LAUNCHES
        if is_graph or _KERNEL_LAUNCH.match(event.name):
            args = _args_of(event, profile.path)
            if args.correlation is not None:
                profile.launches.append(Launch(event.ts, args.correlation, is_graph))
    else:
        found = _STEP.match(event.name)
        if found:
            _check_times(event, profile.path)
            requests = (int(found[1][:9]), int(found[2][:9]), int(found[3][:9]))
            profile.annotations.append(Annotation(event.ts, event.dur, *requests))


def _args_of(event: Event, path: Path) -> _Args:
    _check_times(event, path)
    try:
        return _decode_args(event.args)
    except msgspec.DecodeError as error:
        what = f"the arguments of `{event.name[:80]}` are not a profiler's ({error})"
        raise TraceError(what, where=str(path), do="give the files as the torch profiler wrote them") from error


def _check_times(event: Event, path: Path) -> None:
    if not (math.isfinite(event.ts) and math.isfinite(event.dur) and event.dur >= 0):
        what = f"`{event.name[:80]}` starts at {event.ts} and lasts {event.dur} microseconds"
        raise TraceError(what, where=str(path), do="give the files as the torch profiler wrote them")
