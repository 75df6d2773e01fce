"""Is it as fast as it should be here, and is the measurement itself to be believed?

The first group doubts the measurement (requests, counters, client, clocks, bound), the second judges the server (floor,
ratio, stalls, regression). Everything slow is INCONCLUSIVE instead of FAILED while `disturbance` says that the machine
was not free: a busy machine is slow whatever the server is like.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from glm5check import tolerances
from glm5check.checks.statement import Statement
from glm5check.floors import Floor
from glm5check.records import Finding, GpuState, Measurement, Outcome
from glm5check.roofline import Bound
from glm5check.serving.metrics import GENERATED, PROMPTED, SUCCEEDED, Counters
from glm5check.serving.timing import LoadRun
from glm5check.statistics import Decision, Plan, compare, decide, share_interval

PLAN = Plan(looks=tolerances.SPEED_LOOKS, error=tolerances.SPEED_ERROR)
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


def client_keeps_up(runs: Sequence[LoadRun]) -> list[Finding]:
    """The load client used so little CPU that its own speed is not what was measured."""
    say = Statement("throughput.client", f"the client uses under {tolerances.CLIENT_BUSY:g} cores")
    seconds = sum(run.duration for run in runs)
    if not seconds:
        return [say.inconclusive("no token arrived")]
    cores = sum(run.client_cpu for run in runs) / seconds
    got = f"{cores:.2f} cores"
    if cores < tolerances.CLIENT_BUSY:
        return [say.passed(got)]
    return [say.inconclusive(f"{got}: the client may be the limit; run it on another machine")]


def clocks(states: Sequence[GpuState]) -> list[Finding]:
    """No GPU is throttled by a fault, and none that is busy runs far below its highest clock."""
    share = tolerances.CLOCK_SHARE
    say = Statement("throughput.clocks", f"busy GPUs at {share:.0%} or more of their highest SM clock, none throttled")
    if not states:
        return [say.inconclusive("NVML shows no GPU")]
    findings = []
    for gpu in states:
        reasons = SLOWING & set(gpu.throttle_reasons)
        slow = gpu.utilisation >= tolerances.CLOCK_BUSY and gpu.sm_clock < share * gpu.sm_clock_max
        got = (
            f"{gpu.sm_clock} of {gpu.sm_clock_max} MHz, {gpu.temperature} C, {gpu.power:.0f} of {gpu.power_limit:.0f}"
            f" W, throttled by {', '.join(gpu.throttle_reasons) or 'nothing'}"
        )
        if reasons or slow:
            cause = "cooling, power supply or clock limits (nvidia-smi -q -d PERFORMANCE,CLOCK): fix the machine first"
            findings.append(say.failed(got, cause, gpu=str(gpu.index)))
        else:
            findings.append(say.passed(got, gpu=str(gpu.index)))
    return findings


def undisturbed(share: float) -> str:
    """Why a slow result would say nothing, or nothing if the machine was free; `share` is what neighbours took."""
    if share <= tolerances.NEIGHBOURS_BUSY:
        return ""
    return f"other programs took {share:.0%} of this machine's CPUs"


def below_bound(measured: Measurement, bound: Bound, tokens_per_step: float = 1.0) -> list[Finding]:
    """The measurement is possible: not above the roofline bound. Says what each part of a step would give back."""
    most = bound.tokens_per_second * tokens_per_step
    excess = tolerances.BOUND_EXCESS
    want = f"at most {excess:g} x the bound of {most:.4g} {measured.unit} from bytes, bandwidth and all-reduces"
    say = Statement("throughput.bound", want)
    if not measured.samples:
        return [say.inconclusive("nothing was measured", **measured.where)]
    median = float(np.median(measured.samples))
    if median > most * excess:
        cause = "the clock, the token count, the bandwidth measurement or the tensor table is wrong"
        return [say.failed(f"{median:.4g} {measured.unit}", cause, **measured.where)]
    got = f"{median:.4g} {measured.unit}, {median / most:.1%} of the bound"
    if median < most:
        gains = bound.gains(median / tokens_per_step)
        got += "; without " + ", without ".join(f"{part} {rate * tokens_per_step:.4g}" for part, rate in gains.items())
    return [say.passed(got, **measured.where)]


def floor_reached(
    measured: Measurement, floor: Floor, *, history: Iterable[Floor] = (), disturbance: str = ""
) -> list[Finding]:
    """The interval of the median decides: FAILED when it lies below the floor, PASSED when above.

    `history` are earlier values of the same measure; the nearest one names the likely cause of a failure.
    """
    decision = decide(measured.samples, floor.value, plan=PLAN, higher_is_better=floor.higher_is_better)
    return [
        _decided(
            "throughput.floor",
            decision,
            measured,
            bound=floor.value,
            want=f"{floor}: {floor.reason} ({floor.source}, {floor.date})",
            cause=_like(decision.interval.centre, history),
            disturbance=disturbance,
        )
    ]


def _like(value: float, history: Iterable[Floor]) -> str:
    nearest = min(history, key=lambda entry: abs(math.log(entry.value / value)), default=None)
    return f"nearest to {nearest.value:g} {nearest.unit}, measured with {nearest.reason}" if nearest else ""


def target_reported(measured: Measurement, target: Floor) -> list[Finding]:
    """How far a target is; never fails."""
    say = Statement("throughput.target", f"reported only: {target}, {target.reason}")
    if not measured.samples:
        return [say.inconclusive("nothing was measured", **measured.where)]
    median = float(np.median(measured.samples))
    return [say.passed(f"{median:.4g} {measured.unit}, {median / target.value:.0%} of it", **measured.where)]


def ratio_reached(measured: Measurement, least: float, reason: str, *, disturbance: str = "") -> list[Finding]:
    """A quantity that is a ratio of two measured in the same rounds, against a bound that holds on any machine."""
    decision = decide(measured.samples, least, plan=PLAN, higher_is_better=measured.higher_is_better)
    side = "at least" if measured.higher_is_better else "at most"
    want = f"{side} {least:g} {measured.unit}: {reason}"
    return [_decided("throughput.ratio", decision, measured, bound=least, want=want, disturbance=disturbance)]


def _decided(
    check: str,
    decision: Decision,
    measured: Measurement,
    *,
    bound: float,
    want: str,
    cause: str = "",
    disturbance: str = "",
) -> Finding:
    got = f"{decision.interval} {measured.unit} over {decision.used} rounds"
    outcome = decision.outcome
    if outcome is Outcome.INCONCLUSIVE:
        got += ", which decides nothing yet" if not decision.final else ", around the bound until the budget ended"
    elif outcome is Outcome.FAILED and disturbance:
        outcome, got = Outcome.INCONCLUSIVE, f"{got}, but {disturbance}"
    return Finding(
        check=check,
        outcome=outcome,
        got=got,
        want=want,
        where={"measure": measured.name, **measured.where},
        cause=cause if outcome is Outcome.FAILED else "",
        value=decision.interval.centre,
        bound=bound,
        unit=measured.unit,
    )


def stalls(runs: Sequence[LoadRun], *, disturbance: str = "") -> list[Finding]:
    """Few gaps between tokens are stalls (over STALL_FACTOR times the typical time a token).

    The interval of their share decides. It cannot see a stall shorter than that factor, nor one that hits every token:
    the floor sees those. Where a chunk carries several tokens, the typical gap between chunks is the measure.
    """
    factor, most = tolerances.STALL_FACTOR, tolerances.STALL_SHARE
    want = f"at most {most:.0%} of tokens later than {factor:g} x the typical gap"
    say = Statement("throughput.stalls", want)
    gaps = np.array([gap for run in runs for request in run.completed for gap in request.itl])
    moved = gaps[gaps > 0]
    if not len(moved):
        return [say.inconclusive("no two tokens arrived apart")]
    tpots = [request.tpot for run in runs for request in run.completed if not math.isnan(request.tpot)]
    typical = max(float(np.median(tpots)), float(np.median(moved)))
    late = int(np.sum(gaps > factor * typical))
    share = share_interval(late, len(gaps), tolerances.STALL_CONFIDENCE)
    limit, longest = factor * typical * 1000, float(np.max(gaps)) * 1000
    got = f"{late} of {len(gaps)} gaps ({share.centre:.2%}) over {limit:.3g} ms, the longest {longest:.3g} ms"
    if share.high < most:
        return [say.passed(got)]
    if share.low <= most:
        return [say.inconclusive(f"{got}: too few tokens to tell")]
    if disturbance:
        return [say.inconclusive(f"{got}, but {disturbance}")]
    every = f", about every {len(gaps) / late:.0f}th token"
    return [
        say.failed(got + every, "something periodic: preemption, a graph that is captured late, log or metric flushes")
    ]


def no_regression(
    now: Measurement, before: Sequence[float], *, baseline: Mapping[str, str], disturbance: str = ""
) -> list[Finding]:
    """Not slower than the baseline by Mann-Whitney's test and by REGRESSION_EFFECT. `baseline` says where it is from."""
    want = (
        f"no loss of {tolerances.REGRESSION_EFFECT:.0%} or more at p < {tolerances.REGRESSION_ERROR:g}, and a loss of"
        f" {tolerances.REGRESSION_DROP:.0%} excluded"
    )
    where = {"measure": now.name, **now.where, **baseline}
    say = Statement("throughput.regression", want)
    if not before or not now.samples:
        return [say.inconclusive(f"the {'measurement' if before else 'baseline'} has no samples", **where)]
    result = compare(
        before,
        now.samples,
        higher_is_better=now.higher_is_better,
        error=tolerances.REGRESSION_ERROR,
        smallest_effect=tolerances.REGRESSION_EFFECT,
        drop_to_exclude=tolerances.REGRESSION_DROP,
    )
    change = result.change
    got = (
        f"{result.after:.4g} {now.unit} after {result.before:.4g}, {change.centre:+.1%} [{change.low:+.1%},"
        f" {change.high:+.1%}], p = {result.p_worse:.2g}, {len(before)} and {len(now.samples)} samples"
    )
    outcome = result.outcome
    if outcome is Outcome.FAILED and disturbance:
        outcome, got = Outcome.INCONCLUSIVE, f"{got}, but {disturbance}"
    return [
        Finding(
            check="throughput.regression",
            outcome=outcome,
            got=got,
            want=want,
            where=where,
            value=change.centre,
            bound=-tolerances.REGRESSION_EFFECT,
        )
    ]
