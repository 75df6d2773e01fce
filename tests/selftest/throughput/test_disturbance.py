"""What tells that the machine, and not the server, was slow."""

from __future__ import annotations

import pytest

from fixtures.throughput import Measured
from glm5check.checks import throughput
from glm5check.serving.load import Load
from glm5check.serving.rounds import Series
from glm5check.serving.timing import LoadRun, RequestTiming
from glm5check.serving.workloads import SINGLE, Workload

STEADY = tuple(0.01 * step for step in range(1, 41))
BUNCHED = tuple(0.02 * (step // 2) for step in range(2, 42))
"""Two chunks at a time."""


def decoded(arrivals: tuple[float, ...], streams: int = 1) -> LoadRun:
    count = len(arrivals)
    timing = RequestTiming(
        index=0, sent=0.0, arrivals=arrivals, input_tokens=8, output_tokens=count, chunks=count, error=""
    )
    return LoadRun(requests=(timing,) * streams, concurrency=streams, client_cpu=0.0)


def measured(runs: list[LoadRun], *, on_cpu: bool, busy: float = 0.0) -> Measured:
    workload = Workload(name=SINGLE, unit="tok/s", load=Load(model="glm5"), value=lambda run: run.decode_rate)
    series = Series(workload=workload, runs=runs, busy=[busy])
    return Measured(series={SINGLE: series}, before=None, after=None, on_cpu=on_cpu)  # type: ignore[arg-type]


def test_tokens_that_come_bunched_tell_that_something_took_the_cores() -> None:
    """Two programs that took half of each core, unseen by the guest, made 72 % of chunks of a right server so."""
    assert throughput.bunched([decoded(STEADY)]) == ""
    assert throughput.bunched([decoded(BUNCHED)]).startswith("50% of chunks came together with the one before")
    assert throughput.bunched([]) == ""


@pytest.mark.parametrize(("arrivals", "disturbed"), [(BUNCHED, True), (STEADY, False)])
def test_on_cpus_they_excuse_a_slow_result(arrivals: tuple[float, ...], disturbed: bool) -> None:
    assert bool(measured([decoded(arrivals)], on_cpu=True).disturbance) is disturbed


def test_on_gpus_they_do_not() -> None:
    """There a front end that waits is the deployment's own."""
    assert measured([decoded(BUNCHED)], on_cpu=False).disturbance == ""


def test_many_streams_may_come_together() -> None:
    """Answers of one step leave the server at once; only a single stream tells."""
    assert measured([decoded(BUNCHED, streams=4)], on_cpu=True).disturbance == ""


def test_neighbours_that_are_seen_are_named_first() -> None:
    assert "other programs took 40%" in measured([decoded(BUNCHED)], on_cpu=True, busy=0.4).disturbance


def rounds_with_stalls(every: int, *, of: int = 80) -> list[LoadRun]:
    """Rounds of 64 tokens of 10 ms; every so many rounds one with four late tokens."""
    late = tuple(0.01 * step + 0.1 * (step // 15) for step in range(1, 65))
    steady = tuple(0.01 * step for step in range(1, 65))
    return [decoded(late if number % every == 0 else steady) for number in range(of)]


@pytest.mark.parametrize(
    ("every", "shared_cores", "outcome"), [(1, True, "failed"), (2, True, "inconclusive"), (2, False, "failed")]
)
def test_on_shared_cores_stalls_count_that_hit_every_round(every: int, shared_cores: bool, outcome: str) -> None:
    """Other guests hold tokens up in some rounds and not in others; one token in 50 is late in every round."""
    [finding] = throughput.stalls(rounds_with_stalls(every), shared_cores=shared_cores)
    assert finding.outcome == outcome, finding
    assert ("40 of 80 rounds had none" in finding.got) == (outcome == "inconclusive")
