"""What tells that the machine, and not the server, was slow."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from fixtures.throughput import Measured
from glm5check.pulse import Pulse
from glm5check.serving.load import Load
from glm5check.serving.rounds import Series
from glm5check.serving.workloads import SINGLE, Workload


@pytest.fixture
def pulse() -> Iterator[Pulse]:
    opened = Pulse()
    try:
        yield opened
    finally:
        opened.close()


def stopped_for(pulse: Pulse, seconds: float) -> None:
    """What a hypervisor does to a guest's core, done to the process that feels it."""
    pid = pulse._process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.1)  # the late wake-ups are counted once they have happened


def test_a_core_that_is_taken_away_is_felt_for_as_long(pulse: Pulse) -> None:
    pulse.start()
    begun = time.monotonic()
    stopped_for(pulse, 0.5)
    time.sleep(0.4)
    assert pulse.withheld() >= 0.45 / (time.monotonic() - begun)


def test_what_came_before_the_start_does_not_count(pulse: Pulse) -> None:
    stopped_for(pulse, 1.0)
    pulse.start()
    time.sleep(0.5)
    assert pulse.withheld() < 0.5


def measured(*, busy: float, withheld: list[float]) -> Measured:
    workload = Workload(name=SINGLE, unit="tok/s", load=Load(model="glm5"), value=lambda run: run.decode_rate)
    series = Series(workload=workload, busy=[busy], withheld=withheld)
    return Measured(series={SINGLE: series}, before=None, after=None)  # type: ignore[arg-type]


def test_either_sign_excuses_a_slow_result() -> None:
    assert "other programs took 40%" in measured(busy=0.4, withheld=[0.001]).disturbance
    assert "took a core away for 3.0% of the time" in measured(busy=0.01, withheld=[0.01, 0.05]).disturbance
    assert measured(busy=0.01, withheld=[0.001, 0.002]).disturbance == ""


def test_where_gpus_serve_only_what_neighbours_take_counts() -> None:
    assert measured(busy=0.01, withheld=[]).disturbance == ""
