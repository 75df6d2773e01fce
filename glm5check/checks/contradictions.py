"""Do the server's log, its metrics, its configuration, its traces and NCCL's log tell one story about graphs?

Each comparison is of two statements that are both on record; a failure names both, with their sources. The front end's
word on the graph mode (`/server_info`, the metrics table's header) is from before a worker may have downgraded it, so
it is compared with the log's requested mode only, never with what ran.
"""

from __future__ import annotations

from collections.abc import Iterator

from glm5check.checks.statement import Statement
from glm5check.evidence import Family, GraphMode, LaunchKind, RankTrace, Recording
from glm5check.records import Finding

_Pair = tuple[str, str, bool]
"""What one source says, what the other says, and whether both can be true."""


def nothing_contradicts(recording: Recording) -> list[Finding]:
    """No two records of one server exclude each other."""
    say = Statement(
        "graphs.consistent", "log, metrics, trace, NCCL log and /server_info agree wherever two of them speak"
    )
    pairs = [*_configurations(recording), *_versions(recording), *_runs(recording)]
    findings = [say.failed(f"{one}, but {other}") for one, other, agree in pairs if not agree]
    if findings:
        return findings
    if not pairs:
        return [say.inconclusive("fewer than two records of the server")]
    return [say.passed(f"{len(pairs)} pairs of statements agree")]


def _configurations(recording: Recording) -> Iterator[_Pair]:
    """The log's configuration against /server_info's, and the log against itself."""
    facts, info = recording.facts, recording.info
    if facts is None or info is None:
        return
    for what, logged, told in (
        ("cudagraph_mode", facts.requested_mode, info.requested_mode),
        ("enforce_eager", facts.enforce_eager, info.enforce_eager),
        ("tensor_parallel_size", facts.tensor_parallel, info.tensor_parallel),
    ):
        if logged is not None and told is not None:
            yield f"{facts.source} says {what}={logged}", f"{info.source} says {what}={told}", logged == told
    if facts.all_reduce_backends and info.custom_all_reduce_off is not None:
        off = info.custom_all_reduce_off
        yield (
            f"{facts.source} says all-reduce backends {list(facts.all_reduce_backends)}",
            f"{info.source} says disable_custom_all_reduce={off}",
            not (off and "CUSTOM" in facts.all_reduce_backends),
        )


def _versions(recording: Recording) -> Iterator[_Pair]:
    said = [(source.source, source.version) for source in (recording.facts, recording.info) if source]
    said += [(trace.source, trace.vllm_version) for trace in recording.ranks]
    yield from _alike("vLLM", said)
    libraries = [(recording.facts.source, recording.facts.nccl_version)] if recording.facts else []
    libraries += [(trace.source, trace.nccl_version) for trace in recording.ranks]
    yield from _alike("NCCL", libraries)


def _alike(what: str, said: list[tuple[str, str]]) -> Iterator[_Pair]:
    known = [(source, version) for source, version in said if version]
    for source, version in known[1:]:
        first, reference = known[0]
        yield f"{first} says {what} {reference}", f"{source} says {what} {version}", version == reference


def _runs(recording: Recording) -> Iterator[_Pair]:
    """What ran, by the traces, against what the log and NCCL's log say."""
    for trace in recording.ranks:
        if trace.steady:
            yield from _modes(recording, trace)
            yield from _captures(recording, trace)
    traced = next((trace for trace in recording.ranks if trace.steady), None)
    for log in recording.nccl:
        if traced is not None and log.all_gathers:
            own = next((trace for trace in recording.ranks if trace.rank == log.rank and trace.steady), traced)
            eager = sum(
                kernel.launch is LaunchKind.EAGER and kernel.family is Family.NCCL
                for step in own.steady
                for kernel in step.all_reduces
            )
            a_step = log.all_reduces / log.all_gathers
            yield (
                f"{log.source} counts {a_step:.3g} all-reduce calls a step",
                f"{own.source} shows {eager / len(own.steady):.3g} eager NCCL all-reduces a step",
                (a_step > 0) == (eager > 0),
            )


def _modes(recording: Recording, trace: RankTrace) -> Iterator[_Pair]:
    facts = recording.facts
    rows = facts.dispatches if facts else ()
    for tokens in sorted({step.decode_tokens for step in trace.steady}):
        dispatched = {row.mode for row in rows if row.tokens == tokens}
        ran = {step.mode for step in trace.steady if step.decode_tokens == tokens} - {GraphMode.UNKNOWN}
        if facts and dispatched and ran:
            yield (
                f"the CUDAGraph table in {facts.source} says {_words(dispatched)} for {tokens} tokens",
                f"{trace.source} shows {_words(ran)}",
                ran <= dispatched,
            )


def _captures(recording: Recording, trace: RankTrace) -> Iterator[_Pair]:
    facts = recording.facts
    ran = {step.mode for step in trace.steady}
    if facts is None:
        return
    if facts.graphs_off:
        yield (
            f"{facts.source} says `{facts.graphs_off[0][:80]}`",
            f"{trace.source} shows steps in mode {_words(ran)}",
            not ran & {GraphMode.FULL, GraphMode.PIECEWISE},
        )
    elif facts.captured:
        graphs = ran & {GraphMode.FULL, GraphMode.PIECEWISE}
        yield (
            f"{facts.source} says graphs were captured for {', '.join(sorted(facts.captured))}",
            f"{trace.source} shows steps in mode {_words(ran)}",
            {str(mode) for mode in graphs} <= set(facts.captured),
        )


def _words(modes: set[GraphMode]) -> str:
    return " and ".join(sorted(modes))
