"""Whether a recording's profiles can carry a verdict at all: every rank, enough steady steps, times that make sense."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from glm5check.evidence import GraphMode, RankTrace, Recording
from glm5check.tolerances import MIN_STEADY_STEPS

_PROFILE_AGAIN: Final = "profile 10 to 30 decode steps of one long request"


def incomplete(recording: Recording) -> str:
    """Why the profiles cannot prove anything about every rank's steady steps; empty if they can."""
    ranks = recording.ranks
    if not ranks:
        return "there is no profiler trace"
    missing = _missing_ranks(recording)
    if missing:
        return missing
    for trace in ranks:
        problem = _unusable(trace)
        if problem:
            return f"rank {trace.rank}: {problem}"
    lengths = {len(trace.steady) for trace in ranks}
    if len(lengths) > 1:
        counts = ", ".join(f"rank {trace.rank} {len(trace.steady)}" for trace in ranks)
        return f"the ranks' traces are not of one profile: steady decode steps {counts}"
    return ""


def _missing_ranks(recording: Recording) -> str:
    stated = {trace.world_size for trace in recording.ranks if trace.world_size}
    for source in (recording.facts, recording.info):
        if not stated and source is not None and source.tensor_parallel:
            stated = {source.tensor_parallel}
    if recording.expected_ranks is not None:
        stated = {recording.expected_ranks}
    if len(stated) != 1:
        known = f"they say {sorted(stated)}" if stated else "neither they nor a log say it"
        return f"it is not known how many ranks there were ({known}); give their number (--ranks)"
    lacking = sorted(set(range(min(stated))) - {trace.rank for trace in recording.ranks})
    if lacking:
        return f"traces of {len(recording.ranks)} of {min(stated)} ranks, missing {_listed(lacking)}"
    strangers = sorted({trace.rank for trace in recording.ranks} - set(range(min(stated))))
    return f"rank {strangers[0]} cannot be one of {min(stated)} ranks" if strangers else ""


def _listed(numbers: Iterable[int], limit: int = 8) -> str:
    shown = [str(number) for number in numbers]
    return ", ".join(shown[:limit]) + (f" and {len(shown) - limit} more" if len(shown) > limit else "")


def _unusable(trace: RankTrace) -> str:
    if not trace.steps:
        return f"no vLLM decode step is marked in {trace.source} (no `execute_context_...` annotation)"
    if any(step.mode is GraphMode.UNKNOWN for step in trace.steady):
        return f"{trace.source} has steps without a GPU kernel: the server ran on a CPU, or the profiler saw no GPU"
    if len(trace.steady) < MIN_STEADY_STEPS:
        return f"only {len(trace.steady)} steady decode steps, {MIN_STEADY_STEPS} needed; {_PROFILE_AGAIN}"
    if trace.early_kernels:
        return f"{trace.early_kernels} kernels start before the call that launched them: the times were reordered"
    if trace.steady_orphans:
        return f"{trace.steady_orphans} collectives of steady steps have no launch event"
    return ""
