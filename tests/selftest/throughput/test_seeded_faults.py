"""End to end against a server that misbehaves on purpose: each fault must fail the check that is there for it.

Only faults are asserted here: a busy machine can slow a healthy stub, but it cannot make a slow one fast. That healthy
measurements pass is shown on records in test_checks.py.
"""

from __future__ import annotations

import datetime

import httpx
import pytest

from glm5check.checks import throughput
from glm5check.floors import Floor, Kind
from glm5check.records import Outcome
from glm5check.serving.load import Load
from glm5check.serving.metrics import Counters, parse_metrics
from glm5check.serving.rounds import Rounds, Series
from glm5check.serving.stub import MODEL, Behaviour, running
from glm5check.serving.workloads import SINGLE, Workload
from glm5check.tolerances import SPEED_LOOKS

FLOOR = Floor(
    measure=SINGLE,
    kind=Kind.FLOOR,
    value=180.0,
    unit="tok/s",
    reason="a step of 5 ms gives 200, less a tenth",
    date=datetime.date(2026, 11, 29),
    source="the stub's own pace",
)


def measured(
    behaviour: Behaviour, *, rounds: int, tokens: int = 16, streams: int = 1
) -> tuple[Series, Counters, Counters]:
    workload = Workload(
        name=SINGLE,
        unit="tok/s",
        load=Load(model=MODEL, concurrency=streams, requests=streams, output_tokens=tokens, timeout_s=60),
        value=lambda run: run.decode_rate,
    )
    with running(behaviour) as url:
        bench = Rounds(url, {SINGLE: workload})
        before = parse_metrics(httpx.get(f"{url}/metrics").text)
        for _ in range(rounds):
            bench.one(SINGLE)
        after = parse_metrics(httpx.get(f"{url}/metrics").text)
    return bench.series[SINGLE], before, after


def test_30_percent_slower_decode_fails_its_floor() -> None:
    series, _, _ = measured(Behaviour(step_ms=5 / 0.7), rounds=SPEED_LOOKS[0])
    [finding] = throughput.floor_reached(series.measurement(), FLOOR)
    assert finding.outcome is Outcome.FAILED
    assert finding.value is not None
    assert finding.value <= 141
    assert "at least 180 tok/s: a step of 5 ms gives 200, less a tenth" in str(finding)


def test_a_stall_in_every_50th_token_fails_and_names_the_period() -> None:
    """Steps of 20 ms, so that a busy machine does not bunch tokens; many streams, so that it takes seconds.

    Where it is so busy that they come bunched all the same, the check says inconclusive, and a quieter moment tells.
    """
    for _ in range(3):
        series, _, _ = measured(Behaviour(step_ms=20, stall_every=50, stall_ms=400), rounds=1, tokens=400, streams=16)
        [finding] = throughput.stalls(series.runs)
        if finding.outcome is not Outcome.INCONCLUSIVE:
            break
    assert finding.outcome is Outcome.FAILED
    assert "th token" in finding.got


@pytest.mark.parametrize(("fault", "reason"), [("drop_every", "without usage"), ("short_every", "instead of 4")])
def test_one_request_in_50_dropped_or_short_fails(fault: str, reason: str) -> None:
    series, _, _ = measured(Behaviour(step_ms=1, **{fault: 50}), rounds=50, tokens=4)
    [finding] = throughput.requests_answered(series.runs)
    assert finding.outcome is Outcome.FAILED
    assert finding.got.startswith("1 of 50 failed or short; request 0: ")
    assert reason in finding.got


@pytest.mark.parametrize(("factor", "outcome"), [(0.97, Outcome.FAILED), (1.03, Outcome.FAILED), (1.0, Outcome.PASSED)])
def test_counters_that_disagree_fail(factor: float, outcome: Outcome) -> None:
    series, before, after = measured(Behaviour(step_ms=1, counter_factor=factor), rounds=4, tokens=100)
    generated, *others = throughput.counters_agree(series.runs, before, after)
    assert generated.outcome is outcome
    assert ("3.0% apart" in generated.got) == (outcome is Outcome.FAILED)
    assert {finding.outcome for finding in others} == {Outcome.PASSED}


def test_a_server_that_is_gone_fails_every_request() -> None:
    with running(Behaviour()) as url:
        pass
    workload = Workload(name=SINGLE, unit="tok/s", load=Load(model=MODEL), value=lambda run: run.decode_rate)
    bench = Rounds(url, {SINGLE: workload})
    run = bench.one(SINGLE)
    [finding] = throughput.requests_answered([run])
    assert finding.outcome is Outcome.FAILED
    assert "no connection" in finding.got
    assert bench.series[SINGLE].measurement().samples == ()
