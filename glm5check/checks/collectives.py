"""What a decode step's collectives cost, and which one thing bounds the step. One function a statement.

The recording says what happened in the server; the pre-flight what the same machine does with an all-reduce alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from glm5check.checks.completeness import incomplete
from glm5check.checks.statement import Statement
from glm5check.collectives.results import Preflight, Status
from glm5check.evidence import Family, NcclChoice, Recording
from glm5check.records import Finding, Measurement
from glm5check.tolerances import (
    BANDWIDTH_OVERSHOOT,
    IDLE_SHARE,
    JUDGED_WORK_US,
    NET_OVER_PREFLIGHT,
    SMALL_MESSAGE_BYTES,
)
from glm5check.trace.latency import Division, Part, divisions, reduction_times

_BACKENDS: Final[Mapping[Family, str]] = {
    Family.NCCL: "PYNCCL",
    Family.NCCL_SYMMETRIC: "NCCL_SYMM_MEM",
    Family.VLLM_CUSTOM: "CUSTOM",
    Family.FLASHINFER: "FLASHINFER",
    Family.TORCH_SYMMETRIC: "SYMM_MEM",
}
ADVICE: Final[Mapping[Part, str]] = {
    Part.NET: "the wire: compare protocols and backends with `glm5check preflight`",
    Part.WAITING: "another rank is late: look at the rank that waits least, and at its clocks",
    Part.COLLECTIVE: "collectives beside the all-reduces, such as the logits' all-gather",
    Part.MOE: "the experts: their bytes over memory bandwidth, or a slow path of the quantised MoE kernel",
    Part.ATTENTION: "attention: the KV cache's bytes, or the attention backend",
    Part.GEMM: "dense matrix products: their weights' bytes over memory bandwidth",
    Part.OTHER: "small kernels: norms, rotary, copies; fusing them is what helps",
    Part.GAPS: "launches: the GPU waits for the CPU, so graphs are off or cover too little",
}


def measurements(recording: Recording) -> list[Measurement]:
    """Net and skew of every all-reduce, and the parts of the step of the rank that waits least; for the report."""
    found = []
    times = reduction_times(recording.ranks)
    if times is not None:
        for name, samples in (("all-reduce net", times.net_us), ("all-reduce skew", times.skew_us)):
            found.append(Measurement(name=name, unit="us", samples=samples, higher_is_better=False))
    division = step_division(recording)
    if division is not None:
        where = {"rank": str(division.rank)}
        for part, time in division.parts_us.items():
            found.append(
                Measurement(name=f"step: {part}", unit="us", samples=(time,), higher_is_better=False, where=where)
            )
    return found


def message_choices(recording: Recording, message_bytes: int) -> tuple[NcclChoice, ...]:
    """What NCCL said it runs for a decode step's all-reduce of this size, every different answer once."""
    choices = [choice for log in recording.nccl for choice in log.choices]
    fitting = [one for one in choices if one.operation == "AllReduce" and one.size_bytes == message_bytes]
    return tuple(dict.fromkeys(fitting))


def the_protocol_suits_the_message(
    recording: Recording, message_bytes: int, preflight: Preflight | None
) -> list[Finding]:
    """NCCL runs small all-reduces with a protocol made for them, by its TUNING line: a kernel's name says nothing."""
    say = Statement(
        "collectives.protocol", f"a low-latency protocol (LL or LL128) for all-reduces of {message_bytes} bytes"
    )
    families = {kernel.family for trace in recording.ranks for step in trace.steady for kernel in step.all_reduces}
    if families and Family.NCCL not in families:
        return [say.passed(f"NCCL does not run them: {', '.join(sorted(families))} does")]
    choices = message_choices(recording, message_bytes)
    if not choices:
        how = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING NCCL_DEBUG_FILE=nccl.%h.%p.log"
        return [say.inconclusive(f"no TUNING line for that size; start the server with {how}")]
    got = ", ".join(f"{choice.algorithm} {choice.protocol}" for choice in choices)
    slow = [choice for choice in choices if choice.protocol.upper() == "SIMPLE"]
    if slow and message_bytes <= SMALL_MESSAGE_BYTES:
        return [say.failed(got, "NCCL_PROTO=Simple is set, or NCCL's tuner misjudges the link: try NCCL_PROTO=LL")]
    fastest = preflight.fastest(message_bytes) if preflight else None
    return [say.passed(got + (f"; the pre-flight's fastest is {fastest[1].combination}" if fastest else ""))]


def all_reduces_are_as_fast_as_alone(
    recording: Recording, message_bytes: int, preflight: Preflight | None
) -> list[Finding]:
    """The median net time of an all-reduce in the server is near what the pre-flight measured for the same backend."""
    say = Statement(
        "collectives.latency", f"at most {NET_OVER_PREFLIGHT} times the pre-flight's replayed {message_bytes} bytes"
    )
    reason, times = incomplete(recording), reduction_times(recording.ranks)
    if reason or times is None:
        return [say.inconclusive(reason or "no all-reduce ran on two ranks or more")]
    if preflight is None:
        got = f"{times.median_net_us:.1f} us net, {times.median_skew_us:.1f} us skew"
        return [say.inconclusive(f"{got}, and no pre-flight to compare with (glm5check preflight --json)")]
    if preflight.is_rehearsal:
        return [say.inconclusive("the pre-flight was a rehearsal on a CPU")]
    alone = _alone(recording, message_bytes, preflight)
    if alone is None:
        return [say.inconclusive("the pre-flight has no right result for the backend that ran here")]
    name, expected = alone
    got = f"{times.median_net_us:.1f} us net against {expected:.1f} us of {name}, {times.median_skew_us:.1f} us skew"
    if times.median_net_us > NET_OVER_PREFLIGHT * expected:
        return [say.failed(got, "another protocol or route than in the pre-flight, or GPUs that something else uses")]
    return [say.passed(got)]


def _alone(recording: Recording, message_bytes: int, preflight: Preflight) -> tuple[str, float] | None:
    """The pre-flight's net time for what ran: the same backend and, as far as NCCL said it, algorithm and protocol."""
    families = {kernel.family for trace in recording.ranks for step in trace.steady for kernel in step.all_reduces}
    backends = {_BACKENDS.get(family) for family in families}
    said = {(one.algorithm.upper(), one.protocol.upper()) for one in message_choices(recording, message_bytes)}
    fitting = []
    for result in preflight.results:
        row, one = result.latency(message_bytes), result.combination
        if row is None or result.status is not Status.RIGHT or one.backend not in backends:
            continue
        exact = (one.algorithm.upper(), one.protocol.upper()) in said
        if exact or not one.algorithm:
            fitting.append((not exact, str(one), row.net_us))
    return min(fitting)[1:] if fitting else None


def bandwidth_is_possible(recording: Recording, bytes_a_step: float, bytes_a_second: float | None) -> list[Finding]:
    """A step reads its bytes no faster than the memory can; what share of the machine's bandwidth it uses is reported.

    `bytes_a_step` is what one rank reads for one step, `bytes_a_second` the bandwidth measured on the machine. The time
    is the server's own mean between tokens where that is known, else the profiled step's.
    """
    say = Statement("collectives.bandwidth", "bytes of a step over its time within the machine's measured bandwidth")
    division = step_division(recording)
    if division is None or bytes_a_second is None:
        return [say.inconclusive("no step time" if division is None else "the machine's bandwidth was not measured")]
    effective = bytes_a_step / division.step_us * 1e6
    share = effective / bytes_a_second
    got = f"{effective / 1e9:.0f} of {bytes_a_second / 1e9:.0f} GB/s, {share:.0%} ({bytes_a_step / 1e9:.2f} GB a step)"
    if share > BANDWIDTH_OVERSHOOT:
        return [
            say.failed(got, "the step was measured wrongly, several tokens came out of it, or its bytes are miscounted")
        ]
    return [say.passed(got)]


def work_bounds_the_step(recording: Recording) -> list[Finding]:
    """Of the rank that waits least, the largest part of a step is work or the wire, not idling; with the arithmetic.

    The length of a step is the server's own mean between tokens, where it is known and a step makes one token. A
    profiled step is longer by the profiler's work, which shows as gaps: from it alone, idling cannot be judged.
    """
    say = Statement(
        "collectives.bound", f"gaps and waiting up to {IDLE_SHARE:.0%} of a step each, where ranks wait least"
    )
    reason, division = incomplete(recording), step_division(recording)
    if reason or division is None:
        return [say.inconclusive(reason or "no step has a successor to measure its period by")]
    where = {"rank": str(division.rank)}
    got = f"{division.largest} bounds the step: {arithmetic(division)}"
    if max(division.share(Part.GAPS), division.share(Part.WAITING)) <= IDLE_SHARE:
        return [say.passed(got, **where)]
    if _unprofiled_us(recording) is None:
        return [say.inconclusive(f"{got}; without an unprofiled step time the gaps are partly the profiler's", **where)]
    if division.work_us < JUDGED_WORK_US:
        little = f"{division.work_us:.0f} us of work: too small a model for this GPU, whose host takes longer"
        return [say.inconclusive(f"{got}; {little}", **where)]
    return [say.failed(got, ADVICE[division.largest], **where)]


def step_division(recording: Recording) -> Division | None:
    """How a step divides on the rank that waits least: an unprofiled step if its length is known."""
    parts = divisions(recording.ranks)
    if not parts:
        return None
    known = _unprofiled_us(recording)
    return parts[0].lasting(known) if known else parts[0]


def _unprofiled_us(recording: Recording) -> float | None:
    """Length of a step without a profiler: the mean between tokens, unless steps make several of them."""
    steps = [step for trace in recording.ranks for step in trace.steady]
    one_token = all(step.decode_tokens == step.decode_requests for step in steps)
    return recording.inter_token_us if one_token else None


def arithmetic(division: Division) -> str:
    """A step's parts in us and percent, largest first, as a sum."""
    parts = sorted(division.parts_us.items(), key=lambda part: -part[1])
    words = [f"{part} {time:.0f} ({division.share(part):.0%})" for part, time in parts]
    return f"{division.step_us:.0f} us = " + " + ".join(words)
