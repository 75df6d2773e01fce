"""From one rank's profile to its decode steps.

A step is what the CPU launched from one of vLLM's `execute_context_...` marks to the next. Kernels belong to the step
that launched them, whenever they ran: with asynchronous scheduling the CPU is already at the next step while the GPU
still works on this one. What follows a mark's end and precedes the next mark (logits, sampling, with model runner V2
also their all-gather) belongs to the step before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from glm5check.errors import TraceError
from glm5check.evidence import Collective, DecodeStep, GraphMode, LaunchKind, RankTrace, Work
from glm5check.tolerances import FULL_GRAPH_MIN_SHARE, KERNEL_BEFORE_LAUNCH_US
from glm5check.trace.families import collective_of, work_of, writes_kv_cache
from glm5check.trace.profile import Kernel, Launch, Profile, read_profile

_RANK_IN_NAME: Final = re.compile(r"rank(\d{1,6})(?=[._])")


def read_rank(path: Path) -> RankTrace:
    """Read one rank's trace file and divide it into steps; raises TraceError like `read_profile`."""
    return rank_trace(read_profile(path))


def rank_trace(profile: Profile) -> RankTrace:
    """Join kernels to launches and launches to steps. Raises TraceError if the file does not say whose it is."""
    launches = {launch.correlation: launch for launch in profile.launches}
    # One id for two calls that disagree: the later one is kept, and every kernel that names it is a contradiction.
    torn = {
        launch.correlation for launch in profile.launches if launches[launch.correlation].is_graph != launch.is_graph
    }
    launched = [(kernel, _kind(kernel, launches.get(kernel.correlation), torn)) for kernel in profile.kernels]
    steps = _steps(profile, launches, launched)
    steady = _steady(steps)
    lone = [kernel for kernel, kind in launched if kind is LaunchKind.ORPHAN]
    header = profile.header
    return RankTrace(
        source=profile.path.name,
        rank=_rank(profile),
        world_size=header.distributed.world_size if header.distributed else None,
        device=header.devices[0].name if header.devices else "",
        steps=tuple(steps),
        steady=steady,
        kernels=len(profile.kernels),
        orphans=len(lone),
        steady_orphans=_orphan_collectives(lone, steady),
        early_kernels=sum(
            kernel.start_us < launches[kernel.correlation].start_us - KERNEL_BEFORE_LAUNCH_US
            for kernel, kind in launched
            if kind is not LaunchKind.ORPHAN
        ),
        vllm_version=header.vllm_version,
        nccl_version=header.distributed.nccl_version if header.distributed else "",
    )


def _rank(profile: Profile) -> int:
    distributed = profile.header.distributed
    if distributed is not None and distributed.rank is not None:
        return distributed.rank
    found = _RANK_IN_NAME.search(profile.path.name)
    if found is None:
        raise TraceError(
            "neither the trace nor its name says which rank it is of",
            where=str(profile.path),
            do="name the files rank0.pt.trace.json, rank1.pt.trace.json, ...",
        )
    return int(found[1])


def _kind(kernel: Kernel, launch: Launch | None, torn: set[int]) -> LaunchKind:
    if launch is None:
        return LaunchKind.ORPHAN
    node_says_otherwise = kernel.graph_node is not None and (kernel.graph_node != 0) != launch.is_graph
    if node_says_otherwise or kernel.correlation in torn:
        return LaunchKind.CONTRADICTION
    return LaunchKind.GRAPH if launch.is_graph else LaunchKind.EAGER


def _steps(
    profile: Profile, launches: dict[int, Launch], launched: Sequence[tuple[Kernel, LaunchKind]]
) -> list[DecodeStep]:
    annotations = sorted(profile.annotations, key=lambda mark: mark.start_us)
    starts = [mark.start_us for mark in annotations]
    members: list[list[tuple[Kernel, LaunchKind]]] = [[] for _ in annotations]
    for kernel, kind in launched:
        if kind is not LaunchKind.ORPHAN:
            index = bisect_right(starts, launches[kernel.correlation].start_us) - 1
            if index >= 0:
                members[index].append((kernel, kind))
    steps = [
        DecodeStep(
            index=index,
            start_us=mark.start_us,
            prefill_requests=mark.prefill_requests,
            decode_requests=mark.decode_requests,
            decode_tokens=mark.decode_tokens,
            mode=_mode(kernels),
            kernels=len(kernels),
            graph_launches=len({kernel.correlation for kernel, kind in kernels if kind is LaunchKind.GRAPH}),
            collectives=_collectives(kernels),
            cache_writes=sum(writes_kv_cache(kernel.name) for kernel, _ in kernels),
            period_us=None,
        )
        for index, (mark, kernels) in enumerate(zip(annotations, members, strict=True))
    ]
    return _timed(steps, members)


def _mode(kernels: Sequence[tuple[Kernel, LaunchKind]]) -> GraphMode:
    """FULL if one graph launch has most of the step's graph kernels (a drafter may add small graphs of its own)."""
    if not kernels:
        return GraphMode.UNKNOWN
    sizes = Counter(kernel.correlation for kernel, kind in kernels if kind is LaunchKind.GRAPH)
    if not sizes:
        return GraphMode.NONE
    whole = max(sizes.values()) > FULL_GRAPH_MIN_SHARE * sizes.total()
    return GraphMode.FULL if whole else GraphMode.PIECEWISE


def _collectives(kernels: Sequence[tuple[Kernel, LaunchKind]]) -> tuple[Collective, ...]:
    found = []
    for kernel, kind in kernels:
        what = collective_of(kernel.name)
        if what is not None:
            found.append(
                Collective(
                    name=kernel.name,
                    family=what[0],
                    operation=what[1],
                    launch=kind,
                    start_us=kernel.start_us,
                    duration_us=kernel.duration_us,
                )
            )
    return tuple(sorted(found, key=lambda kernel: kernel.start_us))


def _timed(steps: list[DecodeStep], members: list[list[tuple[Kernel, LaunchKind]]]) -> list[DecodeStep]:
    """Give each step its period and how it divides; a step without a successor on the GPU keeps period None."""
    firsts = [min((kernel.start_us for kernel, _ in kernels), default=None) for kernels in members]
    for index in range(len(steps) - 1):
        begin, end = firsts[index], firsts[index + 1]
        if begin is not None and end is not None and end > begin:
            kernels = [kernel for kernel, _ in members[index]]
            steps[index] = replace(steps[index], period_us=end - begin, busy_us=_division(kernels, begin, end))
    return steps


def _division(kernels: Sequence[Kernel], begin: float, end: float) -> dict[Work, float]:
    """Microseconds of [begin, end) by kind of work; overlapping time goes to the first kind in `Work`'s order."""
    spans: dict[Work, list[Kernel]] = {work: [] for work in Work}
    for kernel in kernels:
        spans[work_of(kernel.name)].append(kernel)
    division: dict[Work, float] = {}
    seen: list[Kernel] = []
    covered = 0.0
    for work, group in spans.items():
        seen += group
        now = _covered(seen, begin, end) if group else covered
        division[work] = now - covered
        covered = now
    return division


def _covered(kernels: Sequence[Kernel], begin: float, end: float) -> float:
    """Length of the union of the kernels' intervals within [begin, end)."""
    bounds: npt.NDArray[np.float64] = np.array([(kernel.start_us, kernel.end_us) for kernel in kernels])
    bounds = np.clip(bounds[np.argsort(bounds[:, 0], kind="stable")], begin, end)
    reach = np.maximum.accumulate(bounds[:, 1])
    from_where = np.maximum(bounds[:, 0], np.concatenate(([begin], reach[:-1])))
    return float(np.maximum(bounds[:, 1] - from_where, 0.0).sum())


def _steady(steps: Sequence[DecodeStep]) -> tuple[DecodeStep, ...]:
    """Decode steps between decode steps: at the edges of a run of them the profile may have cut a step in two."""
    return tuple(
        step
        for before, step, after in zip(steps, steps[1:], steps[2:], strict=False)
        if before.is_decode and step.is_decode and after.is_decode
    )


def _orphan_collectives(lone: Sequence[Kernel], steady: Sequence[DecodeStep]) -> int:
    """Collectives without a launch that ran between the first and the last steady step's collectives."""
    times = [kernel.start_us for step in steady for kernel in step.collectives]
    if not times:
        return sum(collective_of(kernel.name) is not None for kernel in lone)
    return sum(
        collective_of(kernel.name) is not None and min(times) <= kernel.start_us <= max(times) for kernel in lone
    )


def infer_layers(ranks: Sequence[RankTrace]) -> int | None:
    """Layers of the model by the kernels that write a layer's KV cache, one a layer and step; None if they disagree.

    Independent of the all-reduces, so that their number can be checked against it.
    """
    writes = {step.cache_writes for rank in ranks for step in rank.steady}
    return writes.pop() if len(writes) == 1 and 0 not in writes else None
