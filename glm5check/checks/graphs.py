"""Do the collectives of a decode step run inside captured CUDA graphs? One function a statement.

A kernel is in a graph if the runtime call with its correlation id launched a graph. That is judged on the steady decode
steps of every rank; NCCL's own log is the second, independent witness. A step that ran PIECEWISE has its all-reduces in
graphs too: "in a graph" and "in the expected mode" are two results.

Every function takes a Recording and returns findings; where the recording cannot carry a verdict it says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from glm5check.checks.completeness import incomplete
from glm5check.checks.statement import Statement
from glm5check.evidence import Collective, DecodeStep, Family, GraphMode, LaunchKind, RankTrace, Recording
from glm5check.records import Finding
from glm5check.trace.families import BACKEND_FAMILIES

_FULL_MODES: Final = frozenset({"FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"})
# Backends that vLLM asks first but that leave small messages to the next one in the dispatch order.
_LEAVE_SMALL: Final = frozenset({"NCCL_SYMM_MEM", "QUICK_REDUCE", "SYMM_MEM", "FLASHINFER", "FLASHINFER_PCIE_IPC"})
_SHOWN: Final = 8


def graphs_are_on(recording: Recording) -> list[Finding]:
    """The server asked for graphs, captured some, and logged nothing that turns them off or down."""
    say = Statement("graphs.enabled", "CUDA graphs on for decode, and no line of the log that takes them back")
    facts = recording.facts
    if facts is None:
        return [say.inconclusive("there is no server log")]
    lines = [*facts.graphs_off, *facts.downgrades]
    if not lines and (facts.enforce_eager or facts.requested_mode == GraphMode.NONE):
        lines = [f"cudagraph_mode={facts.requested_mode}, enforce_eager={facts.enforce_eager}"]
    if lines:
        cause = "vLLM downgraded the graph mode at start" if facts.downgrades else "the server was started eager"
        return [say.failed(f"the log says: {' | '.join(lines)}", cause)]
    made = {mode: count for mode, count in facts.captured.items() if count} or dict(facts.planned)
    if not made and not facts.capture_finished:
        return [say.inconclusive(f"{facts.source} has no line about captured graphs")]
    what = ", ".join(f"{count} {mode}" for mode, count in made.items()) or "a number of them that is not logged"
    return [say.passed(f"requested {facts.requested_mode}, captured {what}")]


def no_slow_path(recording: Recording) -> list[Finding]:
    """The server's log names no kernel that it replaces by a slow implementation."""
    say = Statement("graphs.slow_path", "no line of the log about a slow implementation")
    facts = recording.facts
    if facts is None:
        return [say.inconclusive("there is no server log")]
    if facts.slow_paths:
        return [say.failed(" | ".join(facts.slow_paths), "a quant type of the experts without a fast kernel")]
    return [say.passed("none")]


def expected_mode(recording: Recording) -> GraphMode | None:
    """The mode that decode steps must run in by what was requested; FULL where that was NONE; None if nothing says."""
    sources = (recording.facts, recording.info)
    requested = next((source.requested_mode for source in sources if source and source.requested_mode), None)
    if requested is None:
        return None
    return GraphMode.FULL if requested in _FULL_MODES or requested == GraphMode.NONE else GraphMode.PIECEWISE


def every_step_ran_in_the_expected_mode(recording: Recording) -> list[Finding]:
    """Every steady step of every rank ran in the requested mode; where no request is known, that is no verdict."""
    expected = expected_mode(recording)
    say = Statement("graphs.mode", f"{expected or 'one and the same graph mode'} in every steady decode step")
    allowed = {expected} if expected else {GraphMode.FULL, GraphMode.PIECEWISE}
    findings = []
    for trace in recording.ranks:
        modes = Counter(step.mode for step in trace.steady if step.mode is not GraphMode.UNKNOWN)
        wrong = [step for step in trace.steady if step.mode in modes and step.mode not in allowed]
        if wrong or len(modes) > 1:
            got = ", ".join(f"{count} steps {mode}" for mode, count in modes.most_common())
            findings.append(say.failed(got, _mode_cause(recording, wrong), rank=str(trace.rank)))
    reason = incomplete(recording)
    if findings or reason:
        return findings or [say.inconclusive(reason)]
    steps = sum(len(trace.steady) for trace in recording.ranks)
    got = f"{recording.ranks[0].steady[0].mode} in {steps} steps on {len(recording.ranks)} ranks"
    return [say.passed(got) if expected else say.inconclusive(f"{got}, and nothing says which mode was requested")]


def _mode_cause(recording: Recording, wrong: Sequence[DecodeStep]) -> str:
    facts = recording.facts
    if facts and (facts.downgrades or facts.graphs_off):
        return " | ".join([*facts.downgrades, *facts.graphs_off])
    largest = max(facts.capture_sizes, default=0) if facts else 0
    beyond = [step.decode_tokens for step in wrong if 0 < largest < step.decode_tokens]
    if facts and beyond:
        notes = f" ({' | '.join(facts.capture_notes)})" if facts.capture_notes else ""
        return f"a batch of {max(beyond)} tokens is above the largest captured size {largest}; vLLM logs nothing{notes}"
    if wrong and all(step.mode is GraphMode.PIECEWISE for step in wrong):
        return "the attention backend or the drafter cannot be captured whole, so vLLM fell back to PIECEWISE"
    if any(step.mode is GraphMode.NONE for step in wrong):
        return "the steps took no captured graph: the server is eager, or the batch has no graph of its size"
    return "graphs of more than one kind, or of another than was requested: is that log of this server?"


def all_reduces_are_in_graphs(recording: Recording) -> list[Finding]:
    """Each all-reduce of each steady step on each rank was launched by a graph, PIECEWISE or FULL alike."""
    say = Statement("graphs.in_graph", "every all-reduce of every steady decode step launched by a CUDA graph")
    findings = []
    for trace in recording.ranks:
        kinds = Counter(kernel.launch for kernel in _all_reduces([trace]))
        if kinds.total() > kinds[LaunchKind.GRAPH]:
            findings.append(_outside(say, trace, kinds))
    if findings:
        return findings
    kernels = _all_reduces(recording.ranks)
    reason = incomplete(recording) or ("" if kernels else "no all-reduce ran (one rank alone needs none)")
    if reason:
        return [say.inconclusive(reason)]
    steady = recording.ranks[0].steady
    launches = sum(step.graph_launches for step in steady) / len(steady)
    return [say.passed(f"{len(kernels)} of {len(kernels)} in graphs, {launches:g} graph launches a step")]


def _all_reduces(ranks: Iterable[RankTrace]) -> list[Collective]:
    return [kernel for trace in ranks for step in trace.steady for kernel in step.all_reduces]


def _outside(say: Statement, trace: RankTrace, kinds: Counter[LaunchKind]) -> Finding:
    total, inside = kinds.total(), kinds[LaunchKind.GRAPH]
    steps = sum(any(kernel.launch is not LaunchKind.GRAPH for kernel in step.all_reduces) for step in trace.steady)
    torn = kinds[LaunchKind.CONTRADICTION]
    if torn:
        cause = f"the trace contradicts itself: {torn} kernels' graph node ids and launch calls disagree"
    elif inside:
        cause = "a part of the model is not captured, or its all-reduce is issued outside of the captured region"
    else:
        cause = "the server runs eagerly"
    got = f"{total - inside} of {total} all-reduces outside of graphs, in {steps} of {len(trace.steady)} steps"
    return say.failed(got, cause, rank=str(trace.rank))


def all_reduces_are_complete(recording: Recording, expected: int | None) -> list[Finding]:
    """Each steady step has exactly `expected` all-reduces, 2 x layers + 1, on every rank."""
    number = "2 x layers + 1" if expected is None else f"exactly {expected}"
    say = Statement(
        "graphs.count", f"{number} all-reduces a step: two a layer (attention, feed-forward) and one for the embedding"
    )
    steps = [step for trace in recording.ranks for step in trace.steady]
    if expected is None:
        return [say.inconclusive("the number of layers is not known; give it (--layers)")]
    if steps and not _all_reduces(recording.ranks):
        return [say.inconclusive(incomplete(recording) or "no all-reduce ran (one rank alone needs none)")]
    if any(step.decode_tokens > step.decode_requests for step in steps):
        return [say.inconclusive("steps with drafted tokens, whose drafter makes all-reduces of its own")]
    findings = []
    for trace in recording.ranks:
        wrong = [step for step in trace.steady if len(step.all_reduces) != expected]
        # Where a launch event was lost, a missing all-reduce is the profile's fault.
        if wrong and not trace.steady_orphans:
            findings.append(_miscounted(say, trace, wrong, expected))
    reason = incomplete(recording)
    if findings or reason:
        return findings or [say.inconclusive(reason)]
    return [say.passed(f"{expected} in each of {len(steps)} steps on {len(recording.ranks)} ranks")]


def _miscounted(say: Statement, trace: RankTrace, wrong: Sequence[DecodeStep], expected: int) -> Finding:
    counts = Counter(len(step.all_reduces) for step in wrong)
    names = Counter(kernel.name for kernel in wrong[0].collectives)
    shown = ", ".join(f"{count} in {steps} steps" for count, steps in counts.most_common(4))
    listed = "; ".join(f"{count} x {name[:60]}" for name, count in names.most_common(5)) or "no collective"
    if min(counts) < expected:
        cause = "an all-reduce was fused or left out, or is of a kind that is not known here"
    else:
        cause = "a layer reduces more than twice, or another part of the model runs in the step"
    got = f"{shown} of {len(trace.steady)} (step {wrong[0].index}: {listed})"
    return say.failed(got, cause, rank=str(trace.rank))


def the_chosen_family_ran(recording: Recording) -> list[Finding]:
    """The all-reduce kernels are those of the backend that the server's own log line puts first for such sizes."""
    facts = recording.facts
    backends = facts.all_reduce_backends if facts else ()
    say = Statement(
        "graphs.family", f"all-reduce kernels of the server's choice for small messages, of {list(backends)}"
    )
    if facts is None or not backends:
        return [say.inconclusive("no line `Using [...] all-reduce backends`; vLLM 0.22.1 and later log it")]
    seen = Counter(kernel.family for kernel in _all_reduces(recording.ranks))
    unknown = [backend for backend in backends if backend not in BACKEND_FAMILIES]
    strangers = [family for family in seen if family not in _families(backends, fused=facts.fused_all_reduce)]
    got = ", ".join(f"{count} x {family}" for family, count in seen.most_common())
    if strangers and not unknown:
        notes = " | ".join(facts.all_reduce_notes)
        return [say.failed(got, f"{backends[0]} did not take the message" + (f"; the log: {notes}" if notes else ""))]
    reason = incomplete(recording) or ("" if seen else "no all-reduce ran (one rank alone needs none)")
    reason = reason or (f"backend {unknown[0]} is not known here" if strangers else "")
    return [say.inconclusive(reason) if reason else say.passed(got)]


def _families(backends: Iterable[str], *, fused: bool) -> set[Family]:
    """Families of the backends up to the first that takes every size."""
    allowed = {Family.FLASHINFER_FUSED} if fused else set()
    for backend in backends:
        allowed.update(BACKEND_FAMILIES.get(backend, ()))
        if backend not in _LEAVE_SMALL:
            break
    return allowed


def nccl_was_silent(recording: Recording, *, steps: int) -> list[Finding]:
    """NCCL's log names no all-reduce over at least `steps` decode steps, while it names an all-gather for each.

    Proves it for the ranks whose logs there are. Says nothing about all-reduces that NCCL does not run.
    """
    say = Statement(
        "graphs.nccl_silent", f"no all-reduce among NCCL's host calls in {steps} or more steps of one all-gather each"
    )
    families = {kernel.family for kernel in _all_reduces(recording.ranks)} - {Family.NCCL, Family.NCCL_SYMMETRIC}
    others = f" ({', '.join(sorted(families))} does them here)" if families else ""
    findings = []
    for log in recording.nccl:
        where = {"rank": "unknown" if log.rank is None else str(log.rank), "window": log.window}
        got = f"{log.all_reduces} all-reduces and {log.all_gathers} all-gathers"
        if log.all_gathers < steps:
            findings.append(say.inconclusive(f"{got}: too few all-gathers to vouch for the silence", **where))
        elif log.all_reduces:
            cause = f"the host enqueues {log.all_reduces / log.all_gathers:.3g} all-reduces a step: not captured"
            findings.append(say.failed(got, cause, **where))
        else:
            findings.append(say.passed(got + others, **where))
    how = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING NCCL_DEBUG_FILE=nccl.%h.%p.log"
    return findings or [say.inconclusive(f"there is no NCCL log; start the server with {how}")]


def same_run(profile: Mapping[str, str], benchmark: Mapping[str, str]) -> list[Finding]:
    """The profile and the measurement carry one fingerprint; a profile of another run explains nothing about it."""
    say = Statement("graphs.fingerprint", "a profile taken from the very server that was measured")
    if not profile or not benchmark:
        return [say.inconclusive(f"{'the measurement' if profile else 'the profile'} has no fingerprint")]
    keys = sorted(key for key in profile.keys() | benchmark.keys() if profile.get(key) != benchmark.get(key))
    if not keys:
        return [say.passed(f"{len(profile)} facts equal")]
    shown = [f"{key}: profile {profile.get(key)!r}, measured {benchmark.get(key)!r}" for key in keys[:_SHOWN]]
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    cause = "the profile is of another start or configuration, such as an eager one, so it is not used"
    return [say.failed(f"{len(keys)} facts differ: {'; '.join(shown)}{more}", cause)]
