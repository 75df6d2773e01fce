"""The rules by hand: intervals that can be counted out, decisions that must and must not be taken."""

from __future__ import annotations

import math
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from glm5check.records import Outcome
from glm5check.statistics import (
    Plan,
    change_interval,
    compare,
    decide,
    design_effect,
    median_interval,
    share_interval,
)


def alternating(count: int) -> list[int]:
    """1 to `count` with neighbours from opposite ends, so that nothing is correlated with what came before."""
    low, high = list(range(1, (count + 1) // 2 + 1)), list(range(count, (count + 1) // 2, -1))
    return [value for pair in zip_longest(low, high) for value in pair if value is not None]


PLAN = Plan(looks=(10, 20, 40), error=0.01)


def test_five_samples_say_nothing_at_95_percent_and_six_do() -> None:
    assert math.isinf(median_interval([1, 2, 3, 4, 5], 0.95).low)
    assert (median_interval([6, 1, 5, 2, 4, 3], 0.95).low, median_interval([6, 1, 5, 2, 4, 3], 0.95).high) == (1, 6)


@given(samples=st.lists(st.floats(0, 1), min_size=1, max_size=150, unique=True), confidence=st.floats(0.5, 0.99999))
def test_the_interval_is_never_narrower_than_the_exact_one_of_independent_samples(
    samples: list[float], confidence: float
) -> None:
    interval = median_interval(samples, confidence)
    for low in (sum(value < interval.low for value in samples), sum(value > interval.high for value in samples)):
        assert low == 0 or stats.binom.cdf(low, len(samples), 0.5) <= (1 - confidence) / 2 * (1 + 1e-9)


def test_the_interval_is_the_exact_one_where_nothing_is_correlated() -> None:
    """20 samples at 95 %: the 6th smallest to the 6th largest (P(Bin(20, 1/2) <= 5) = 0.0207)."""
    samples = [6, 15, 4, 18, 8, 13, 1, 20, 7, 14, 3, 17, 10, 11, 2, 19, 9, 12, 5, 16]
    interval = median_interval(samples, 0.95)
    assert (interval.low, interval.high) == (6, 15)


def test_the_share_interval_is_known_at_its_ends() -> None:
    assert share_interval(0, 100, 0.95).high == pytest.approx(1 - 0.025 ** (1 / 100))
    assert share_interval(100, 100, 0.95).low == pytest.approx(0.025 ** (1 / 100))
    assert share_interval(0, 100, 0.95).low == 0


@pytest.mark.parametrize(
    ("value", "higher_is_better", "outcome"),
    [
        (90, True, Outcome.FAILED),
        (110, True, Outcome.PASSED),
        (90, False, Outcome.PASSED),
        (110, False, Outcome.FAILED),
    ],
)
def test_the_interval_decides(value: float, higher_is_better: bool, outcome: Outcome) -> None:
    samples = [value + offset - 5 for offset in alternating(10)]
    decision = decide(samples, 100, plan=PLAN, higher_is_better=higher_is_better)
    assert (decision.outcome, decision.used, decision.final) == (outcome, 10, True)


def test_a_floor_inside_the_interval_decides_nothing_until_the_budget_ends() -> None:
    samples = [90, 110] * 20
    assert not decide(samples[:30], 100, plan=PLAN).final
    assert decide(samples, 100, plan=PLAN).final
    assert decide(samples, 100, plan=PLAN).outcome is Outcome.INCONCLUSIVE


def test_the_first_look_that_decides_counts() -> None:
    assert decide([90] * 10 + [200] * 30, 100, plan=PLAN).outcome is Outcome.FAILED


def test_no_samples_and_too_few_samples_are_no_verdict() -> None:
    for samples in ([], [200.0] * 9):
        decision = decide(samples, 100, plan=PLAN)
        assert (decision.outcome, decision.final) == (Outcome.INCONCLUSIVE, False)


@pytest.mark.parametrize(("looks", "error"), [((), 0.01), ((9, 3), 0.01), ((3, 9), 0.01), ((0, 9), 0.5)])
def test_a_plan_that_cannot_work_is_refused(looks: tuple[int, ...], error: float) -> None:
    with pytest.raises(ValueError, match=r"looks must|never decide"):
        Plan(looks=looks, error=error)


def test_a_decision_errs_no_more_often_than_it_says() -> None:
    """3,000 nights whose true median is the floor itself, the worst healthy case, with a tail to the slow side."""
    source = np.random.default_rng(5)
    nights = 100 * np.exp(-source.exponential(0.1, (3_000, 40)) + 0.1 * math.log(2))
    failed = sum(decide(night.tolist(), 100, plan=PLAN).outcome is Outcome.FAILED for night in nights)
    assert failed <= stats.binom.ppf(0.999, len(nights), PLAN.error)


RULE = {"error": 1e-3, "smallest_effect": 0.02, "drop_to_exclude": 0.05}


def noisy(median: float, count: int = 60, *, seed: int = 0, spread: float = 0.01) -> list[float]:
    return (median * np.exp(np.random.default_rng(seed).normal(0, spread, count))).tolist()


@pytest.mark.parametrize(
    ("after", "higher_is_better", "outcome"),
    [
        (95, True, Outcome.FAILED),
        (105, True, Outcome.PASSED),
        (95, False, Outcome.PASSED),
        (105, False, Outcome.FAILED),
        (100, True, Outcome.PASSED),
        (99, True, Outcome.PASSED),
    ],
)
def test_a_loss_fails_and_a_gain_or_a_trifle_does_not(after: float, higher_is_better: bool, outcome: Outcome) -> None:
    result = compare(noisy(100), noisy(after, seed=1), higher_is_better=higher_is_better, **RULE)
    assert result.outcome is outcome
    assert result.change.centre == pytest.approx(after / 100 - 1 if higher_is_better else 100 / after - 1, abs=0.01)


def test_few_or_wild_samples_are_inconclusive_not_passed() -> None:
    assert compare([100, 101], [100, 101], higher_is_better=True, **RULE).outcome is Outcome.INCONCLUSIVE
    wild = compare(noisy(100, spread=0.5), noisy(100, spread=0.5, seed=1), higher_is_better=True, **RULE)
    assert wild.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("samples", [[], [0.0, 1.0], [-1.0], [math.nan], [math.inf]])
def test_samples_that_are_no_speeds_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="positive samples"):
        compare([1.0], samples, higher_is_better=True, **RULE)


def test_pairs_are_bounded() -> None:
    with pytest.raises(ValueError, match="too many pairs"):
        change_interval([1.0] * 19_000, [1.0] * 19_000, 0.95, higher_is_better=True)


def test_a_drift_is_worth_few_samples_and_noise_is_worth_itself() -> None:
    noise = np.random.default_rng(2).normal(0, 1, 400)
    assert design_effect(noise) < 1.5
    assert design_effect(np.repeat(noise[:40], 10)) == pytest.approx(10, rel=0.3)
    assert design_effect(np.arange(100.0)) > 20
    assert design_effect(np.full(20, 5.0)) == design_effect(np.full(1, 5.0)) == 1


def test_slow_spells_above_the_floor_are_no_reason_to_doubt() -> None:
    """What falls below the floor in spells decides, not what the samples do elsewhere."""
    assert decide([150.0] * 20 + [120.0] * 20, 100, plan=PLAN).outcome is Outcome.PASSED


def test_a_drift_through_the_floor_decides_nothing() -> None:
    drifting = np.linspace(90, 130, 40).tolist()
    assert decide(drifting, 100, plan=Plan(looks=(40,), error=0.01)).outcome is Outcome.INCONCLUSIVE
    shuffled = np.random.default_rng(1).permutation(drifting).tolist()
    assert decide(shuffled, 100, plan=Plan(looks=(40,), error=0.01)).outcome is Outcome.PASSED
