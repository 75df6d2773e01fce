"""How often the rules of speed err and how often they see a 5 % drop, by simulated nights on recorded noise.

A night takes contiguous pieces of one recorded session, so drift and clumps of slow rounds stay in. "No change" is the
worst healthy case: the true median is the floor itself, or the night comes from the session of the baseline. Only the
scale is invented: `calmer` divides the recorded deviations, to find how calm a machine must be for a budget.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fixtures import DATA
from glm5check import tolerances
from glm5check.checks.throughput.speed import PLAN
from glm5check.records import Outcome
from glm5check.statistics import compare, decide

NIGHTS = 3200
"""With no false alarm in that many, fewer than 1 in 1,000 nights at 95 % confidence (rule of three)."""
VERDICTS = 20
DROP = 0.95
BUDGET = tolerances.SPEED_LOOKS[-1]
Night = Callable[[int], NDArray[np.float64]]


def nights(name: str, *, calmer: float = 1.0, seed: int = 7) -> Night:
    """Draws `count` samples of median 1: pieces of 10 to 20 rounds in a row of one session, joined in random order."""
    recorded = json.loads((DATA / "throughput" / "noise" / f"{name}.json").read_text())
    sessions = [np.log(np.array(session) / np.median(session)) / calmer for session in recorded["sessions"]]
    source = np.random.default_rng(seed)

    def night(count: int) -> NDArray[np.float64]:
        session = sessions[source.integers(len(sessions))]
        pieces: list[NDArray[np.float64]] = []
        while sum(map(len, pieces)) < count:
            start, length = source.integers(len(session)), source.integers(10, 21)
            pieces.append(np.take(session, range(start, start + length), mode="wrap"))
        return np.exp(np.concatenate(pieces)[:count])

    return night


def regression(before: NDArray[np.float64], after: NDArray[np.float64]) -> Outcome:
    return compare(
        before.tolist(),
        after.tolist(),
        higher_is_better=True,
        error=tolerances.REGRESSION_ERROR,
        smallest_effect=tolerances.REGRESSION_EFFECT,
        drop_to_exclude=tolerances.REGRESSION_DROP,
    ).outcome


def detected(night: Night, count: int, *, trials: int = 200) -> float:
    """Share of nights with a 5 % drop that fail against a baseline of equally many rounds."""
    seen = sum(regression(night(count), DROP * night(count)) is Outcome.FAILED for _ in range(trials))
    return seen / trials


@pytest.mark.slow
def test_a_floor_alarms_falsely_in_fewer_than_one_night_in_1000() -> None:
    night = nights("cpu_shared")
    alarms = sum(
        any(decide(night(BUDGET).tolist(), 1.0, plan=PLAN).outcome is Outcome.FAILED for _ in range(VERDICTS))
        for _ in range(NIGHTS)
    )
    assert alarms == 0


def test_a_comparison_alarms_falsely_in_fewer_than_one_night_in_1000(progress: Callable[[str], None]) -> None:
    night = nights("cpu_shared")
    alarms = sum(regression(night(BUDGET), night(BUDGET)) is Outcome.FAILED for _ in range(NIGHTS))
    progress(f"comparisons without a change, as recorded: {alarms} of {NIGHTS} alarm")
    assert alarms < NIGHTS / 1000


def test_a_5_percent_drop_is_seen_with_the_default_budget_on_a_calmer_machine(
    progress: Callable[[str], None],
) -> None:
    """Recorded was a CPU that others used too: rounds spread by 14 % and wander by 25 % within a session.

    No budget of a night sees 5 % in that. At an eighth of it, 1.7 % and 3 %, the default budget is enough.
    """
    rates = {calmer: detected(nights("cpu_shared", calmer=calmer), BUDGET) for calmer in (1, 2, 4, 6, 8)}
    told = ", ".join(f"{rate:.0%} at 1/{calmer}" for calmer, rate in rates.items())
    progress(f"a 5 % drop in {BUDGET} rounds is seen, by spread over the recorded one: {told}")
    assert rates[8] > 0.95
    assert rates[1] < 0.05


def test_a_gpu_that_is_the_limit_shows_5_percent_and_never_alarms_falsely(progress: Callable[[str], None]) -> None:
    """Sixteen streams on an H200 spread by 0.3 %; one stream of a small model there waits for its host, by 3.6 %.

    Host time wanders for dozens of rounds, which the rules take for what it is: they do not alarm, and do not see 5 %.
    """
    rates = {}
    for name in ("h200_16_streams", "h200_one_stream"):
        night = nights(name)
        rates[name] = detected(night, BUDGET)
        assert not any(regression(night(BUDGET), night(BUDGET)) is Outcome.FAILED for _ in range(NIGHTS))
        progress(f"{name}: a 5 % drop in {BUDGET} rounds is seen in {rates[name]:.0%} of nights")
    assert rates["h200_16_streams"] > 0.95


@pytest.mark.parametrize(("factor", "outcome"), [(0.77, Outcome.FAILED), (1.18, Outcome.PASSED)])
def test_30_percent_longer_steps_fail_and_a_healthy_server_passes(factor: float, outcome: Outcome) -> None:
    """Against the derived floor of a CPU, HOST_SHARE of the expected speed, at half of the recorded spread."""
    night = nights("cpu_shared", calmer=2)
    floor = tolerances.HOST_SHARE if outcome is Outcome.FAILED else 1.0
    seen = [decide((factor * night(BUDGET)).tolist(), floor, plan=PLAN).outcome for _ in range(200)]
    assert np.mean([one is outcome for one in seen]) > 0.95
