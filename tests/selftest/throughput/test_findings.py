"""What the throughput checks say, case by case; the approved words are in findings.txt."""

import datetime
import math
from dataclasses import replace

import numpy as np
import pytest

from glm5check import tolerances
from glm5check.checks import throughput
from glm5check.floors import Floor, Kind
from glm5check.records import GpuState, Measurement
from glm5check.roofline import Bound
from glm5check.serving.metrics import GENERATED, PROMPTED, SUCCEEDED, Counters
from glm5check.serving.ratios import Ratio
from glm5check.serving.timing import LoadRun, RequestTiming
from tests.selftest.approved import approved, told

BUSY = "other programs took 40% of this machine's CPUs"


def measured(median, step=0.01, count=18, **changes):
    """Samples that alternate around a median: no slow spells."""
    samples = tuple(median + step * (1 if i % 2 else -1) * (i // 2 % 3 + 1) for i in range(count))
    made = Measurement(name="decode.single", unit="tok/s", samples=samples, higher_is_better=True, where={"tp": "2"})
    return replace(made, **changes)


NOTHING = measured(1, samples=())


def floor(value, kind=Kind.FLOOR, reason="so it was", unit="tok/s"):
    return Floor(
        measure="decode.single",
        kind=kind,
        value=value,
        unit=unit,
        reason=reason,
        date=datetime.date(2026, 11, 29),
        source="here",
    )


HISTORY = [floor(20, Kind.HISTORY, "eager launches"), floor(43, Kind.HISTORY, "graphs"), floor(57, Kind.HISTORY, "LL")]


def reached(speed, least=50.0, **more):
    return lambda: throughput.floor_reached(speed, None if least is None else floor(least), **more)


def run(*gaps, chunks=None, error="", requests=1, cpu=0.0, sent=0.0, index=0, first=0.02):
    """A run of equal requests whose first token comes after 20 ms, the others after these gaps in seconds."""
    arrivals = tuple(np.cumsum([first, *gaps]).tolist())
    timing = RequestTiming(
        index=index,
        sent=sent,
        arrivals=arrivals,
        input_tokens=8,
        output_tokens=len(arrivals),
        chunks=len(arrivals) if chunks is None else chunks,
        error=error,
    )
    return LoadRun(requests=(timing,) * requests, concurrency=1, client_cpu=cpu)


STEADY = [0.25] * 100
"""Gaps of a quarter of a second, which floats hold exactly."""
LATE = run(*([0.25] * 49 + [2.0]) * 2)
HELD_UP = run(*[0.25] * 40, 2.0, *[0.0] * 9)


def stalled(*runs, **more):
    return lambda: throughput.stalls(runs, **more)


def counted(runs, generated, prompted=8.0, succeeded=1.0):
    before = Counters({GENERATED: 100.0, PROMPTED: 10.0, SUCCEEDED: 1.0})
    names = {GENERATED: generated, PROMPTED: prompted, SUCCEEDED: succeeded}
    after = Counters({name: before.values[name] + more for name, more in names.items() if more is not None})
    return lambda: throughput.counters_agree(runs, before, after)


GPU = GpuState(
    index=0,
    name="NVIDIA H200",
    driver="570",
    sm_clock=1980,
    sm_clock_max=1980,
    memory_clock=3201,
    memory_clock_max=3201,
    throttle_reasons=(),
    temperature=55,
    power=450.4,
    power_limit=700.0,
    utilisation=90,
)
HOT = replace(GPU, sm_clock=1230, temperature=88, throttle_reasons=("sw_thermal_slowdown", "sw_power_cap"))
SLOW = replace(GPU, sm_clock=1500)
IDLE = replace(GPU, sm_clock=345, utilisation=49)
AT_SHARE = replace(GPU, sm_clock=1584, utilisation=50)


def clocks(*states):
    return lambda: throughput.clocks(states)


BOUND = Bound(parts={"split weights": 0.004, "all-reduces": 0.006}, batch=1)


def below(speed, bound=BOUND, **more):
    return lambda: throughput.below_bound(speed, bound, **more)


def ratio(median, **changes):
    speed = measured(median, 0.001, name="four / one", unit="times", **changes)
    return Ratio(measured=speed, bound=0.9, reason="more must not give less")


BASELINE = {"baseline": "nights/1"}


def regressed(now, before=None, **more):
    samples = measured(60, 0.1, count=40).samples if before is None else before
    return lambda: throughput.no_regression(now, samples, baseline=BASELINE, **more)


def clients(ours, theirs):
    return lambda: throughput.clients_agree(measured(1, samples=tuple(ours)), measured(1, samples=tuple(theirs)))


VERDICTS = {
    "a speed is above its floor": reached(measured(57)),
    "a speed is below its floor": reached(measured(21), history=HISTORY),
    "a speed is near another part of its history": reached(measured(45), history=HISTORY),
    "a speed is below its floor and has no history": reached(measured(21)),
    "a speed is below its floor on a busy machine": reached(measured(21), disturbance=BUSY, history=HISTORY),
    "a speed is above its floor on a busy machine": reached(measured(57), disturbance=BUSY),
    "a speed is around its floor": reached(measured(50, step=1.0)),
    "a speed is around its floor until the end": reached(measured(50, step=1.0, count=54)),
    "a latency is below its ceiling": lambda: throughput.floor_reached(measured(21), floor(50, unit="ms")),
    "there is no floor for this machine": reached(measured(57), None, machine={"gpu": "H200", "gpus": 2}),
    "there is no floor and no machine": reached(measured(57.123456), None),
    "there is neither floor nor measurement": reached(NOTHING, None, machine={"gpu": "H200"}),
    "a floor and no measurement": reached(NOTHING),
    "a target is far": lambda: throughput.target_reported(measured(57), floor(100, Kind.TARGET, "as others reach")),
    "a target and no measurement": lambda: throughput.target_reported(NOTHING, floor(100, Kind.TARGET)),
    "a ratio keeps its bound": lambda: throughput.ratio_kept(ratio(1.4)),
    "a ratio is too low": lambda: throughput.ratio_kept(ratio(0.8)),
    "a ratio is too low on a busy machine": lambda: throughput.ratio_kept(ratio(0.8), disturbance=BUSY),
    "a ratio of times is too high": lambda: throughput.ratio_kept(ratio(1.4, higher_is_better=False)),
    "a speed is lost": regressed(measured(57, 0.1, count=40)),
    "a speed is lost on a busy machine": regressed(measured(57, 0.1, count=40), disturbance=BUSY),
    "a speed is won": regressed(measured(63, 0.1, count=40)),
    "a speed is won on a busy machine": regressed(measured(63, 0.1, count=40), disturbance=BUSY),
    "a little is lost": regressed(measured(59.4, 0.1, count=40)),
    "a latency is lost": regressed(measured(63, 0.1, count=40, higher_is_better=False)),
    "two samples cannot tell": regressed(measured(40, 0.1, count=2)),
    "there is no baseline": regressed(measured(60), []),
    "there is a baseline and no measurement": regressed(NOTHING),
    "tokens come steadily": stalled(run(*STEADY)),
    "tokens come steadily in many requests": stalled(*[run(*STEADY)] * 40),
    "every 50th token is late": stalled(*[LATE] * 40),
    "every 50th token is late on a busy machine": stalled(*[LATE] * 40, disturbance=BUSY),
    "few tokens are late": stalled(LATE),
    "tokens wait for each other": stalled(*[HELD_UP] * 100),
    "drafts come in chunks": stalled(*[run(*[0.75, 0.0, 0.0, 0.0] * 25, chunks=26)] * 40),
    "gaps are exactly three times the typical one": stalled(
        *[run(*STEADY, first=0.25)] * 39, run(*[0.25, 0.75] * 50, first=0.25)
    ),
    "the server does not say its chunks": stalled(*[run(*([0.25] * 49 + [2.0]) * 2, chunks=0)] * 40),
    "half of the requests are twice as slow": stalled(*[run(*STEADY)] * 20, *[run(*[0.5] * 100)] * 20),
    "failed requests do not count": stalled(
        *[run(*STEADY)] * 40, replace(LATE, requests=(replace(LATE.requests[0], error="broken"),) * 40)
    ),
    "one token a request": stalled(run()),
    "all tokens at once": stalled(run(0.0, 0.0)),
    "no run at all": stalled(),
}
BELIEF = {
    "every request is answered": lambda: throughput.requests_answered([run(0.25, requests=3), run(0.25)]),
    "four requests fail": lambda: throughput.requests_answered(
        [run(0.25, requests=6), *(run(0.25, error=f"reason {i}", index=i) for i in range(4))]
    ),
    "no request is sent": lambda: throughput.requests_answered([]),
    "the counters agree": counted([run(*[0.25] * 99)], 100.0),
    "the server counts two percent more": counted([run(*[0.25] * 99)], 102.0),
    "the server counts more": counted([run(*[0.25] * 99)], 103.0),
    "the server counts less": counted([run(*[0.25] * 99)], 90.0),
    "the server lacks a counter": counted([run(*[0.25] * 99)], None),
    "the client counted nothing": counted([], 100.0),
    "failed requests count their tokens alone": counted([run(0.25, 0.25, 0.25), run(0.25, error="broken")], 6.0),
    "two clients agree": clients([100.0, 101.0] * 12, [100.5] * 24),
    "one client is faster": clients([106.0, 105.0] * 12, [100.5] * 24),
    "one client is slower": clients([96.0, 95.0] * 12, [100.5] * 24),
    "two clients vary": clients([90.0, 100.0, 110.0, 120.0] * 6, [101.0] * 24),
    "two clients measured unequally often": clients([100.0] * 3, [100.0] * 2),
    "two clients measured nothing": clients([], []),
    "the client keeps up": lambda: throughput.client_keeps_up([run(1.98, cpu=0.1), run(1.98, cpu=0.3)]),
    "the client uses half a core": lambda: throughput.client_keeps_up([run(0.98, cpu=0.5)]),
    "the client uses more": lambda: throughput.client_keeps_up([run(0.98, cpu=0.9)]),
    "an answer came all at once": lambda: throughput.client_keeps_up([run(0.48), run(0.0, 0.0)]),
    "no token arrived": lambda: throughput.client_keeps_up([]),
    "a GPU is at its clock": clocks(GPU, GPU),
    "a GPU is throttled in one look of three": clocks(GPU, HOT, GPU),
    "the slowest look is shown": clocks(GPU, SLOW, HOT, SLOW),
    "one GPU of two is slow": clocks(GPU, replace(SLOW, index=1), replace(GPU, index=1)),
    "an idle GPU clocks down": clocks(IDLE),
    "a busy GPU is at the least share": clocks(AT_SHARE),
    "a busy GPU is just below it": clocks(replace(AT_SHARE, sm_clock=1583)),
    "a GPU is throttled at its full clock": clocks(replace(GPU, throttle_reasons=("hw_slowdown",))),
    "a power cap alone is no fault": clocks(replace(GPU, throttle_reasons=("sw_power_cap",))),
    "NVML shows nothing": clocks(),
    "neighbours are quiet": lambda: throughput.neighbours_quiet(0.02, 0.001),
    "neighbours take a tenth": lambda: throughput.neighbours_quiet(0.10, 0.01),
    "neighbours are busy": lambda: throughput.neighbours_quiet(0.4, 0.001),
    "a core is taken away": lambda: throughput.neighbours_quiet(0.02, 0.03),
    "a speed is below its bound": below(measured(50, 0.0)),
    "a speed is below its bound with drafts": below(measured(50, 0.0), tokens_per_step=2.0),
    "a speed is at its bound": below(measured(100, 0.0)),
    "a speed is above its bound within the excess": below(measured(102, 0.0)),
    "a speed is impossible": below(measured(103, 0.0)),
    "a speed is possible with drafts": below(measured(103, 0.0), tokens_per_step=2.0),
    "nothing was measured against a bound": below(NOTHING),
    "the bound is unknown": below(measured(50), None),
}
CASES = VERDICTS | BELIEF


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]


def late_among(total, late):
    """One request with `late` late tokens among `total`."""
    return run(*[0.25] * (total - late), *[2.0] * late)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(0.0, 1.1, "passed"), (0.0, 1.0, "inconclusive"), (1.0, 2.0, "inconclusive"), (0.9, 2.0, "failed")],
)
def test_the_share_of_stalls_is_judged_by_both_ends_of_its_interval(low, high, outcome, monkeypatch):
    """`low` and `high`: the bound as a multiple of the interval's lower or upper end; 1.0 is exactly there."""
    from glm5check.statistics import share_interval

    interval = share_interval(30, 1000, tolerances.STALL_CONFIDENCE)
    bound = interval.high * high if low == 0 else interval.low * low
    monkeypatch.setattr(tolerances, "STALL_SHARE", bound)
    assert throughput.stalls([late_among(1000, 30)])[0].outcome == outcome


def test_bunched_chunks_excuse_only_above_their_share(monkeypatch):
    """26 of 51 chunks came with the one before: exactly at the share late tokens are judged, below it they are not."""
    held = [run(*([0.25] * 24 + [2.0]), *[0.0] * 26)] * 100
    share = float(np.mean([one.bunched for one in held]))
    monkeypatch.setattr(tolerances, "BUNCHED_SHARE", share)
    assert throughput.stalls(held)[0].outcome == "failed"
    monkeypatch.setattr(tolerances, "BUNCHED_SHARE", math.nextafter(share, 0))
    assert throughput.stalls(held)[0].outcome == "inconclusive"


def test_two_clients_are_judged_by_both_ends_of_their_interval(monkeypatch):
    """All ratios equal: the interval is one value, which may lie at the bound on either side."""
    for ours, apart in ((1.25, 0.25), (0.75, 0.25)):
        check = clients([ours] * 24, [1.0] * 24)
        monkeypatch.setattr(tolerances, "CLIENTS_APART", apart)
        assert check()[0].outcome == "passed"
        monkeypatch.setattr(tolerances, "CLIENTS_APART", math.nextafter(apart, 0))
        assert check()[0].outcome == "failed"
