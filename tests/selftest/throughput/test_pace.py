"""Rounds are compared at one pace of the machine, and what measures the pace is alone and leaves nothing behind."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time

import psutil
import pytest

from glm5check.calibration import Pace, _mean
from glm5check.serving.load import Load
from glm5check.serving.rounds import Series
from glm5check.serving.timing import LoadRun, RequestTiming
from glm5check.serving.workloads import SINGLE, Workload


def series(*gaps: float, paces: list[float]) -> Series:
    """Rounds of three tokens each, this many seconds apart; 0 for a round that got no answer."""
    workload = Workload(name=SINGLE, unit="tok/s", load=Load(model="glm5"), value=lambda run: run.decode_rate)
    runs = [LoadRun(requests=(_request(gap),), concurrency=1) for gap in gaps]
    return Series(workload=workload, runs=runs, paces=paces)


def _request(gap: float) -> RequestTiming:
    return RequestTiming(
        index=0,
        sent=0.0,
        arrivals=(gap, 2 * gap, 3 * gap),
        input_tokens=8,
        output_tokens=3,
        chunks=3,
        error="" if gap else "no connection",
    )


def test_a_round_on_a_machine_of_half_the_speed_counts_like_the_others() -> None:
    rounds = series(0.25, 0.25, 0.5, paces=[1e-4, 1e-4, 2e-4])
    assert rounds.measurement().samples == (4, 4, 2)
    assert rounds.at_median_pace().samples == (4, 4, 4)


def test_a_server_of_half_the_speed_is_not_excused_by_a_machine_as_fast_as_ever() -> None:
    assert series(0.25, 0.5, paces=[1e-4, 1e-4]).at_median_pace().samples == (4, 2)


def test_without_calibration_speeds_stay_as_measured() -> None:
    assert series(0.25, 0.5, paces=[]).at_median_pace().samples == (4, 2)


def test_a_round_without_an_answer_leaves_each_other_to_its_own_pace() -> None:
    assert series(0.25, 0, 0.5, paces=[1e-4, 1e-4, 2e-4]).at_median_pace().samples == (4, 4)


def test_a_unit_that_something_else_ran_in_counts_little() -> None:
    assert _mean([1.0] * 9 + [1000.0]) == pytest.approx(1.2)
    assert math.isnan(_mean([]))


def test_a_pace_has_sessions_of_its_own_so_that_units_take_no_turn_of_the_client() -> None:
    pace = Pace(2)
    try:
        pace.start()
        time.sleep(0.5)
        pace.stop()
        sessions = {os.getsid(process.pid) for process in pace._processes if process.pid}
        assert len(sessions - {os.getsid(0)}) == 2
    finally:
        pace.close()


@pytest.mark.parametrize("started", [False, True])
def test_no_process_of_a_pace_outlives_its_parent(started: bool) -> None:
    """Also where the parent is killed, in the middle of a round or between two."""
    begin = "pace.start()" if started else ""
    program = f"""
import os, sys
from glm5check.calibration import Pace
if __name__ == "__main__":
    pace = Pace(2)
    {begin}
    print(*(process.pid for process in pace._processes), flush=True)
    os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    end = time.monotonic() + 20
    while (left := [pid for pid in pids if psutil.pid_exists(pid)]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left
    assert "Traceback" not in done.stderr
