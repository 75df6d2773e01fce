"""Is the server as fast as it should be here: floors, targets, ratios, stalls, and what was measured before.

Everything slow is INCONCLUSIVE instead of FAILED while `disturbance` says that the machine was not free: a busy machine
is slow whatever the server is like.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from glm5check import tolerances
from glm5check.checks.statement import Statement
from glm5check.floors import Floor
from glm5check.records import Finding, Measurement, Outcome
from glm5check.serving.ratios import Ratio
from glm5check.serving.timing import LoadRun
from glm5check.statistics import Decision, Plan, compare, decide, share_interval

PLAN = Plan(looks=tolerances.SPEED_LOOKS, error=tolerances.SPEED_ERROR)


def floor_reached(
    measured: Measurement,
    floor: Floor | None,
    *,
    machine: Mapping[str, object] | None = None,
    history: Iterable[Floor] = (),
    disturbance: str = "",
) -> list[Finding]:
    """The interval of the median decides: FAILED when it lies below the floor, PASSED when above.

    Without a floor it is INCONCLUSIVE and says what was measured on which `machine`. `history` are earlier values of
    the same measure; the nearest one names the likely cause of a failure.
    """
    if floor is None:
        return _no_floor(measured, machine or {})
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


def _no_floor(measured: Measurement, machine: Mapping[str, object]) -> list[Finding]:
    say = Statement("throughput.floor", "a floor for this machine in floors.toml, or what is needed to derive one")
    median = f"{np.median(measured.samples):.4g} {measured.unit}" if measured.samples else "nothing"
    facts = ", ".join(f"{key} = {value}" for key, value in machine.items()) or "an unknown machine"
    return [say.inconclusive(f"{median} was measured; no floor for {facts}", measure=measured.name, **measured.where)]


def _like(value: float, history: Iterable[Floor]) -> str:
    nearest = min(history, key=lambda entry: abs(math.log(entry.value / value)), default=None)
    return f"nearest to {nearest.value:g} {nearest.unit}, measured with {nearest.reason}" if nearest else ""


def target_reported(measured: Measurement, target: Floor) -> list[Finding]:
    """How far a target is; never fails."""
    say = Statement("throughput.target", f"reported only: {target}, {target.reason}")
    where = {"measure": measured.name, **measured.where}
    if not measured.samples:
        return [say.inconclusive("nothing was measured", **where)]
    median = float(np.median(measured.samples))
    finding = say.passed(f"{median:.4g} {measured.unit}, {median / target.value:.0%} of it", **where)
    return [replace(finding, value=median, bound=target.value, unit=measured.unit)]


def ratio_kept(ratio: Ratio, *, disturbance: str = "") -> list[Finding]:
    """A ratio of two workloads of the same rounds keeps a bound that holds on any machine."""
    measured = ratio.measured
    decision = decide(measured.samples, ratio.bound, plan=PLAN, higher_is_better=measured.higher_is_better)
    side = "at least" if measured.higher_is_better else "at most"
    want = f"{side} {ratio.bound:g} {measured.unit}: {ratio.reason}"
    return [_decided("throughput.ratio", decision, measured, bound=ratio.bound, want=want, disturbance=disturbance)]


def _decided(
    check: str,
    decision: Decision,
    measured: Measurement,
    *,
    bound: float,
    want: str,
    disturbance: str,
    cause: str = "",
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
    reason = disturbance or _bunched(runs)
    if reason:
        return [say.inconclusive(f"{got}, but {reason}")]
    every = f", about every {len(gaps) / late:.0f}th token"
    return [
        say.failed(got + every, "something periodic: preemption, a graph that is captured late, log or metric flushes")
    ]


def _bunched(runs: Sequence[LoadRun]) -> str:
    """Why single late tokens would say nothing; empty where tokens came one by one."""
    shares = [run.bunched for run in runs if not math.isnan(run.bunched)]
    share = float(np.mean(shares)) if shares else 0.0
    if share <= tolerances.BUNCHED_SHARE:
        return ""
    return f"{share:.0%} of chunks came together with the one before: the server's front end or the client waits"


def no_regression(
    now: Measurement, before: Sequence[float], *, baseline: Mapping[str, str], disturbance: str = ""
) -> list[Finding]:
    """Not slower than the baseline by Mann-Whitney's test and by REGRESSION_EFFECT; `baseline` says where that is."""
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
