"""Is a measurement of speed to be believed? Requests, counters, the client, clocks and neighbours, the roofline.

A measurement that fails here says nothing about the server, fast or slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from glm5check import tolerances
from glm5check.checks.statement import Statement
from glm5check.records import Finding, GpuState, Measurement
from glm5check.roofline import Bound
from glm5check.serving.metrics import GENERATED, PROMPTED, SUCCEEDED, Counters
from glm5check.serving.timing import LoadRun
from glm5check.statistics import median_interval

SLOWING = {"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"}
"""NVML's throttling reasons that are faults of the machine. A power cap alone is only judged by its clock."""


def requests_answered(runs: Sequence[LoadRun]) -> list[Finding]:
    """Every request got exactly the tokens that it asked for; a failed one is a failure and not a missing sample."""
    say = Statement("throughput.requests", "every request answered in full")
    total = sum(len(run.requests) for run in runs)
    if not total:
        return [say.inconclusive("no request was sent")]
    failed = [request for run in runs for request in run.failed]
    if not failed:
        return [say.passed(f"{total} of {total}")]
    reasons = [f"request {request.index}: {request.error}" for request in failed[:3]]
    got = f"{len(failed)} of {total} failed or short; {'; '.join(reasons)}"
    return [say.failed(got, "the server drops or cuts requests: its speed over the rest is not its speed")]


def counters_agree(runs: Sequence[LoadRun], before: Counters, after: Counters) -> list[Finding]:
    """The server counted what the client counted, within COUNTERS_APART, between `before` and `after`."""
    ours = {
        GENERATED: sum(len(request.arrivals) for run in runs for request in run.requests),
        PROMPTED: sum(run.input_tokens for run in runs),
        SUCCEEDED: sum(len(run.completed) for run in runs),
    }
    return [_counter(name, count, after.since(before, name)) for name, count in ours.items()]


def _counter(name: str, ours: int, theirs: float | None) -> Finding:
    bound = tolerances.COUNTERS_APART
    say = Statement("throughput.counters", f"within {bound:.0%} of what the client counted")
    if theirs is None:
        return say.inconclusive("/metrics has no such counter", counter=name)
    if not ours:
        return say.inconclusive("the client counted nothing", counter=name)
    apart = abs(theirs - ours) / ours
    got = f"{theirs:g} by the server, {ours} by the client, {apart:.1%} apart"
    if apart <= bound:
        return say.passed(got, counter=name)
    cause = (
        "the client loses or invents tokens" if theirs < ours else "somebody else uses the server, or tokens get lost"
    )
    return say.failed(got, cause, counter=name)


def clients_agree(ours: Measurement, theirs: Measurement) -> list[Finding]:
    """Two clients that took turns on one server measured the same; sample i of both was taken side by side.

    The interval of the median ratio decides: FAILED when all of it is further from 1 than CLIENTS_APART, PASSED when
    none of it is, INCONCLUSIVE else, as on a machine that other programs keep busy.
    """
    most = tolerances.CLIENTS_APART
    say = Statement("throughput.clients", f"within {most:.0%} of the other client's")
    where = {"measure": ours.name, **ours.where}
    if not ours.samples or len(ours.samples) != len(theirs.samples):
        return [say.inconclusive(f"{len(ours.samples)} and {len(theirs.samples)} samples are no pairs", **where)]
    ratios = np.array(ours.samples) / np.array(theirs.samples)
    interval = median_interval((ratios - 1).tolist(), tolerances.CLIENTS_CONFIDENCE)
    got = f"{interval.centre:+.2%} [{interval.low:+.2%}, {interval.high:+.2%}] over {len(ratios)} pairs"
    if interval.low > most or interval.high < -most:
        return [say.failed(got, "one of the clients counts or times tokens wrongly", **where)]
    if -most <= interval.low and interval.high <= most:
        return [say.passed(got, **where)]
    return [say.inconclusive(got, **where)]


def client_keeps_up(runs: Sequence[LoadRun]) -> list[Finding]:
    """The load client used so little CPU, and saw tokens come so singly, that it is not what was measured."""
    say = Statement("throughput.client", f"under {tolerances.CLIENT_BUSY:g} cores, and no answer that came all at once")
    seconds = sum(run.duration for run in runs)
    if not seconds:
        return [say.inconclusive("no token arrived")]
    cores = sum(run.client_cpu for run in runs) / seconds
    at_once = sum(request.tpot == 0 for run in runs for request in run.completed)
    got = f"{cores:.2f} cores, {at_once} answers all at once"
    if cores < tolerances.CLIENT_BUSY and not at_once:
        return [say.passed(got)]
    return [say.inconclusive(f"{got}: the client is held up; free this machine or run it on another")]


def clocks(states: Iterable[GpuState]) -> list[Finding]:
    """No GPU was throttled by a fault, and none that was busy ran far below its highest clock.

    `states` are taken after rounds of a measurement, any number a GPU; the worst counts.
    """
    share = tolerances.CLOCK_SHARE
    say = Statement("throughput.clocks", f"busy GPUs at {share:.0%} or more of their highest SM clock, none throttled")
    by_gpu: dict[int, list[GpuState]] = {}
    for state in states:
        by_gpu.setdefault(state.index, []).append(state)
    if not by_gpu:
        return [say.inconclusive("NVML shows no GPU")]
    findings = []
    for index, seen in by_gpu.items():
        slow = [state for state in seen if _is_slow(state)]
        got = f"{_clock_text(min(slow or seen, key=lambda state: state.sm_clock))}, in {len(slow)} of {len(seen)} looks"
        if slow:
            cause = "cooling, power supply or clock limits (nvidia-smi -q -d PERFORMANCE,CLOCK): fix the machine first"
            findings.append(say.failed(got, cause, gpu=str(index)))
        else:
            findings.append(say.passed(got, gpu=str(index)))
    return findings


def _is_slow(gpu: GpuState) -> bool:
    below = gpu.sm_clock < tolerances.CLOCK_SHARE * gpu.sm_clock_max
    return bool(SLOWING & set(gpu.throttle_reasons)) or (below and gpu.utilisation >= tolerances.CLOCK_BUSY)


def _clock_text(gpu: GpuState) -> str:
    reasons = ", ".join(gpu.throttle_reasons) or "nothing"
    power = f"{gpu.power:.0f} of {gpu.power_limit:.0f} W"
    return f"{gpu.sm_clock} of {gpu.sm_clock_max} MHz, {gpu.temperature} C, {power}, throttled by {reasons}"


def neighbours_quiet(share: float, withheld: float) -> list[Finding]:
    """Little of this machine's CPUs went elsewhere while it was measured.

    `share` is what other programs took of all CPUs, `withheld` how much of the time a waking process had to wait for
    its core (glm5check.pulse), both 0 to 1.
    """
    say = Statement(
        "throughput.neighbours",
        f"other programs take at most {tolerances.NEIGHBOURS_BUSY:.0%} of all CPUs, and nothing takes a core away for"
        f" more than {tolerances.CORE_WITHHELD:.0%} of the time",
    )
    reason = disturbed(share, withheld)
    got = f"{share:.1%} and {withheld:.2%}"
    return [say.inconclusive(f"{reason}: measure again when they are gone") if reason else say.passed(got)]


def disturbed(share: float, withheld: float) -> str:
    """Why a slow result would say nothing; empty if the machine was free. As for `neighbours_quiet`."""
    if share > tolerances.NEIGHBOURS_BUSY:
        return f"other programs took {share:.0%} of this machine's CPUs"
    if withheld > tolerances.CORE_WITHHELD:
        return f"other programs or other guests of the host took a core away for {withheld:.1%} of the time"
    return ""


def below_bound(measured: Measurement, bound: Bound | None, tokens_per_step: float = 1.0) -> list[Finding]:
    """The measurement is possible: not above the roofline bound. Says what each part of a step would give back.

    `tokens_per_step` is over 1 where speculated tokens are accepted: the bound is on steps.
    """
    if bound is None:
        say = Statement("throughput.bound", "a speed that the hardware can give")
        return [say.inconclusive("ranks, model file or memory bandwidth of this server are not known here")]
    most, excess = bound.tokens_per_second * tokens_per_step, tolerances.BOUND_EXCESS
    want = f"at most {excess:g} x the bound of {most:.4g} {measured.unit} from bytes, bandwidth and all-reduces"
    say = Statement("throughput.bound", want)
    where = {"measure": measured.name, **measured.where}
    if not measured.samples:
        return [say.inconclusive("nothing was measured", **where)]
    median = float(np.median(measured.samples))
    if median > most * excess:
        cause = "the clock, the token count, the bandwidth measurement or the tensor table is wrong"
        finding = say.failed(f"{median:.4g} {measured.unit}", cause, **where)
    else:
        finding = say.passed(f"{median:.4g} {measured.unit}, {_share_of(bound, median, tokens_per_step)}", **where)
    return [replace(finding, value=median, bound=most, unit=measured.unit)]


def _share_of(bound: Bound, median: float, tokens_per_step: float) -> str:
    """The share of the bound, and tok/s if each part of a step took no time."""
    steps = median / tokens_per_step
    text = f"{bound.share(steps):.1%} of the bound"
    if bound.share(steps) >= 1:
        return text
    gains = ", ".join(f"{part} {rate * tokens_per_step:.4g}" for part, rate in bound.gains(steps).items())
    return f"{text}; without one part of a step: {gains}"
