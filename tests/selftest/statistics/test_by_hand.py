"""Numbers of the rules that can be worked out with pencil and paper, at the places where a sign or a border matters."""

from __future__ import annotations

import math
from itertools import zip_longest

import numpy as np
import pytest
from scipy import stats

from glm5check import statistics
from glm5check.records import Outcome
from glm5check.statistics import (
    Interval,
    Plan,
    change_interval,
    compare,
    decide,
    design_effect,
    median_interval,
    share_interval,
    wandering,
)

PLAN = Plan(looks=(10, 20), error=0.01)
ALTERNATING = [3.0, 8.0, 1.0, 10.0, 4.0, 7.0, 2.0, 9.0, 5.0, 6.0]
"""1 to 10, with neighbours from opposite ends: nothing is correlated with what came before."""


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (Interval(1.0, 2.0, 3.0, 0.95), "2 [1, 3]"),
        (Interval(1.23456, 23456.7, 3.45678, 0.95), "2.346e+04 [1.235, 3.457]"),
        (Interval(-math.inf, 2.0, math.inf, 0.99995), "2 [too few samples for 0.99995 confidence]"),
    ],
)
def test_an_interval_in_words(interval: Interval, words: str) -> None:
    assert str(interval) == words


@pytest.mark.parametrize(
    ("values", "effect"),
    [
        # Centred -1 -1 1 1 -1 -1 1 1: lag 1 has (1 - 1 + 1 - 1 + 1 - 1 + 1) / 8, lag 2 is negative.
        ([0, 0, 2, 2, 0, 0, 2, 2], 1 + 2 * (1 / 8)),
        # -1 -1 -1 -1 1 1 1 1: lag 1 (7 - 2) / 8; lag 2 (6 - 4) / 8.
        ([0, 0, 0, 0, 2, 2, 2, 2], 1 + 2 * (5 / 8 + 2 / 8)),
        # Seven values allow one lag only.
        (
            [0, 0, 0, 0, 2, 2, 2],
            1 + 2 * sum(a * b for a, b in [(6, 6)] * 3 + [(-6, 8)] + [(8, 8)] * 2) / (4 * 36 + 3 * 64),
        ),
        # Lag 1 is exactly 0: the sum ends there, though lag 2 is not.
        ([1, 0, 1, 0, -1, 0, -1, 0], 1),
        ([0, 2] * 10, 1),
        ([5] * 12, 1),
        ([1, 2, 3], 1),
    ],
)
def test_what_values_in_spells_are_worth(values: list[float], effect: float) -> None:
    assert design_effect(np.array(values, dtype=float)) == pytest.approx(effect)
    assert design_effect(np.array(values, dtype=float) * 1e-3) == pytest.approx(effect)


def test_a_median_interval_of_ten_by_counting() -> None:
    """P(Bin(10, 1/2) <= 1) = 11/1024, <= 2: 56/1024, so at 98 % one sample a side is left out, at 97 % none more."""
    for confidence, low in ((0.98, 2.0), (0.9, 2.0), (0.89, 3.0), (0.978, 2.0), (0.979, 1.0)):
        interval = median_interval(ALTERNATING, confidence)
        expected = max(k for k in range(11) if k == 0 or stats.binom.cdf(k - 1, 10, 0.5) <= (1 - confidence) / 2)
        assert interval.low == expected, (confidence, low)
        assert interval.high == 11 - expected
        assert (interval.centre, interval.confidence) == (5.5, confidence)


@pytest.mark.parametrize(("count", "low"), [(9, 4.0), (10, 5.0), (11, 5.0)])
def test_an_interval_of_little_confidence_is_narrow(count: int, low: float) -> None:
    """At 20 %: up to the sample that 40 % of such medians would lie below."""
    low_first, high_first = np.arange(1.0, count / 2 + 1), np.arange(count, count / 2 + 0.5, -1.0)
    samples = [value for pair in zip_longest(low_first, high_first) for value in pair if value is not None]
    assert sorted(samples) == list(range(1, count + 1))
    assert (median_interval(samples, 0.2).low, median_interval(samples, 0.2).high) == (low, count + 1 - low)


def test_a_chance_of_exactly_what_confidence_leaves_is_left_out() -> None:
    chance = float(stats.binom.cdf(1, 10, 0.5))
    confidence = 1 - 2 * chance
    assert (1 - confidence) / 2 == chance
    assert median_interval(ALTERNATING, confidence).low == 2.0


def test_samples_in_spells_widen_the_interval() -> None:
    """Slow spells of five are worth one sample each: 40 samples then leave no more certainty than eight."""
    spells = [float(low + i) for low in (1, 21, 6, 26, 11, 31, 16, 36) for i in range(5)]
    shuffled = np.random.default_rng(4).permutation(spells).tolist()
    assert median_interval(spells, 0.9).low < median_interval(shuffled, 0.9).low
    assert median_interval(spells, 0.9).high > median_interval(shuffled, 0.9).high
    with pytest.raises(ValueError, match=r"^an interval needs at least one sample$"):
        median_interval([], 0.9)


def test_the_share_of_three_in_ten_by_its_definition() -> None:
    """At the ends of the interval, as few or as many hits have half of what confidence leaves."""
    interval = share_interval(3, 10, 0.9)
    assert stats.binom.sf(2, 10, interval.low) == pytest.approx(0.05)
    assert stats.binom.cdf(3, 10, interval.high) == pytest.approx(0.05)
    assert (interval.centre, interval.confidence) == (0.3, 0.9)


@pytest.mark.parametrize(("hits", "total", "low", "high"), [(0, 1, 0.0, 0.95), (1, 1, 0.05, 1.0)])
def test_the_share_of_one_trial(hits: int, total: int, low: float, high: float) -> None:
    interval = share_interval(hits, total, 0.9)
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert (interval.low == 0.0, interval.high == 1.0) == (hits == 0, hits == 1)


@pytest.mark.parametrize(("hits", "total"), [(-1, 3), (4, 3), (0, 0)])
def test_what_is_no_share_is_refused(hits: int, total: int) -> None:
    with pytest.raises(ValueError, match=f"^{hits} of {total} is no share$"):
        share_interval(hits, total, 0.9)


def test_a_plan_shares_its_error_out_over_looks_and_sides() -> None:
    assert PLAN.confidence == pytest.approx(1 - 2 * 0.01 / 2)
    assert Plan(looks=(3,), error=0.125).confidence == pytest.approx(0.75)  # 0.5 ** 3 is just enough
    with pytest.raises(ValueError, match=r"^3 samples can never decide at error 0.124$"):
        Plan(looks=(3,), error=0.124)
    with pytest.raises(ValueError, match=r"^3 samples can never decide at error 0.2$"):
        Plan(looks=(3, 9), error=0.2)
    assert Plan(looks=(1,), error=0.5).looks == (1,)


@pytest.mark.parametrize("looks", [(), (9, 3), (3, 3), (0, 9)])
def test_looks_that_do_not_grow_are_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^looks must be growing sample counts, not \("):
        Plan(looks=looks, error=0.9)


def test_a_decision_without_samples() -> None:
    found = decide([], 5.0, plan=PLAN)
    assert (found.outcome, found.used, found.final) == (Outcome.INCONCLUSIVE, 0, False)
    assert (found.interval.low, found.interval.high) == (-math.inf, math.inf)
    assert math.isnan(found.interval.centre)
    assert found.interval.confidence == PLAN.confidence


@pytest.mark.parametrize(
    ("count", "used", "final"), [(9, 9, False), (10, 10, False), (19, 10, False), (20, 20, True), (25, 20, True)]
)
def test_undecided_samples_are_used_up_to_the_last_look(count: int, used: int, final: bool) -> None:
    samples = ([4.0, 6.0] * 13)[:count]
    found = decide(samples, 5.0, plan=PLAN)
    assert (found.outcome, found.used, found.final) == (Outcome.INCONCLUSIVE, used, final)
    assert str(found.interval) == str(median_interval(samples[:used], PLAN.confidence))


@pytest.mark.parametrize(
    ("floor", "outcome"), [(1.0, "inconclusive"), (0.99, "passed"), (10.0, "inconclusive"), (10.01, "failed")]
)
def test_an_interval_that_touches_the_floor_decides_nothing(floor: float, outcome: str) -> None:
    """At this confidence the interval of ten runs from the least to the largest: 1 to 10."""
    assert decide(ALTERNATING, floor, plan=Plan(looks=(10,), error=0.001)).outcome == outcome


def test_the_later_look_decides_where_the_first_did_not() -> None:
    found = decide([4.0, 6.0] * 5 + [6.0] * 10, 5.0, plan=Plan(looks=(10, 20), error=0.1))
    assert (found.outcome, found.used, found.final) == (Outcome.PASSED, 20, True)


def test_how_far_a_run_wanders_by_its_blocks_of_nine() -> None:
    assert wandering([100.0] * 9 + [110.0] * 9) == pytest.approx(0.1)
    assert wandering([100.0] * 9 + [121.0] * 9 + [110.0] * 9) == pytest.approx(0.21)
    assert wandering([100.0] * 8 + [110.0] * 9) == 0.0  # 17 rounds are one block
    assert wandering([100.0, 110.0]) == 0.0


def spread(centre: float, count: int = 40, by: float = 0.01) -> list[float]:
    """Samples around a centre, alternating far and near sides: nothing is correlated, the deviation is known."""
    ladder = [(-1) ** i * (1 + i // 2 % 5) * by for i in range(count)]
    return [centre * math.exp(step) for step in ladder]


def test_a_change_by_its_formula() -> None:
    """Centre, robust deviation and Student's t put together by hand."""
    before, after = spread(100.0), spread(110.0, 30, 0.02)
    found = change_interval(before, after, 0.98, higher_is_better=True)
    deviations = [stats.median_abs_deviation(np.log(one), scale="normal") for one in (before, after)]
    error = math.sqrt(math.pi / 3 * (deviations[0] ** 2 / 40 + deviations[1] ** 2 / 30))
    reach = stats.t.ppf(0.99, 68) * error
    assert found.centre == pytest.approx(0.1)
    assert found.low == pytest.approx(math.expm1(math.log(1.1) - reach))
    assert found.high == pytest.approx(math.expm1(math.log(1.1) + reach))
    assert found.confidence == 0.98
    worse = change_interval(before, after, 0.98, higher_is_better=False)
    assert worse.centre == pytest.approx(1 / 1.1 - 1)
    assert (worse.low, worse.high) == pytest.approx((1 / (1 + found.high) - 1, 1 / (1 + found.low) - 1))


def test_slow_spells_make_a_change_less_certain() -> None:
    quiet = spread(100.0)
    spells = sorted(quiet[:20]) + sorted(quiet[20:])
    assert (
        change_interval(quiet, spells, 0.9, higher_is_better=True).high
        > change_interval(quiet, quiet, 0.9, higher_is_better=True).high * 1.2
    )


def test_one_sample_a_side_has_a_change_and_no_interval() -> None:
    found = change_interval([1.0], [2.0], 0.9, higher_is_better=True)
    assert (found.low, found.centre, found.high) == (-math.inf, pytest.approx(1.0), math.inf)


@pytest.mark.parametrize(("one", "other", "finite"), [(8, 8, True), (7, 8, False), (8, 7, False)])
def test_fewer_than_eight_samples_a_side_have_no_spread(one: int, other: int, finite: bool) -> None:
    found = change_interval(spread(100.0, one), spread(110.0, other), 0.9, higher_is_better=True)
    assert math.isfinite(found.low) is math.isfinite(found.high) is finite
    assert (found.low < found.centre < found.high, found.confidence) == (True, 0.9)


def test_samples_worth_four_in_all_have_no_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "design_effect", lambda _: 4.0)
    assert math.isinf(change_interval(spread(1.0, 8), spread(1.0, 8), 0.9, higher_is_better=True).low)
    assert math.isfinite(change_interval(spread(1.0, 8), spread(1.0, 9), 0.9, higher_is_better=True).low)


def test_pairs_and_samples_are_bounded_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_PAIRS", 80)
    monkeypatch.setattr(statistics, "MAX_SAMPLES", 10)
    assert change_interval([1.0] * 10, [1.0] * 8, 0.9, higher_is_better=True).centre == 0
    with pytest.raises(ValueError, match=r"^10 x 9 samples are too many pairs$"):
        change_interval([1.0] * 10, [1.0] * 9, 0.9, higher_is_better=True)
    with pytest.raises(ValueError, match=r"^a comparison needs 1 to 10 positive samples a side, not 11$"):
        change_interval([1.0] * 11, [1.0], 0.9, higher_is_better=True)
    with pytest.raises(ValueError, match=r"^a comparison needs 1 to 10 positive samples a side, not 0$"):
        wandering([])


RULE = {"error": 1e-3, "smallest_effect": 0.02, "drop_to_exclude": 0.05}


def test_a_comparison_says_both_medians_and_the_chance_of_such_ranks() -> None:
    before, after = spread(100.0), spread(90.0)
    found = compare(before, after, higher_is_better=True, **RULE)
    assert found.p_worse == pytest.approx(stats.mannwhitneyu(after, before, alternative="less").pvalue)
    assert (found.before, found.after) == pytest.approx((np.median(before), np.median(after)))
    assert found.change == change_interval(before, after, 1 - 2 * 1e-3, higher_is_better=True)
    slower = compare(before, spread(110.0), higher_is_better=False, **RULE)
    assert slower.p_worse == pytest.approx(stats.mannwhitneyu(spread(110.0), before, alternative="greater").pvalue)
    assert found.outcome is slower.outcome is Outcome.FAILED


def test_each_condition_of_a_loss_is_needed() -> None:
    """Significance, an interval below zero, and a loss beyond the smallest effect, at its bound included."""
    before, after = spread(100.0), spread(96.0)
    found = compare(before, after, higher_is_better=True, **RULE)
    assert found.outcome is Outcome.FAILED
    rules = {**RULE, "drop_to_exclude": 0.0}
    loss = -found.change.centre
    assert compare(before, after, higher_is_better=True, **{**rules, "smallest_effect": loss}).outcome is Outcome.FAILED
    more = math.nextafter(loss, 1)
    undecided = compare(before, after, higher_is_better=True, **{**rules, "smallest_effect": more})
    assert undecided.outcome is Outcome.INCONCLUSIVE
    unsure = compare(before, after, higher_is_better=True, **{**rules, "error": found.p_worse})
    assert unsure.outcome is Outcome.INCONCLUSIVE


def test_a_loss_within_what_either_run_wanders_is_no_failure() -> None:
    steady, low = spread(100.0, 36), spread(95.0, 36)
    assert compare(steady, low, higher_is_better=True, **RULE).outcome is Outcome.FAILED
    wanders = spread(100.0, 27) + spread(93.0, 9)
    assert compare(wanders, low, higher_is_better=True, **RULE).outcome is Outcome.INCONCLUSIVE
    steady, sinks = spread(100.0, 36, 0.002), spread(97.5, 27, 0.002) + spread(93.0, 9, 0.002)
    found = compare(steady, sinks, higher_is_better=True, **{**RULE, "drop_to_exclude": 0.0})
    assert (found.outcome, found.change.high < 0) == (Outcome.INCONCLUSIVE, True)


def test_ranks_as_unlikely_as_the_error_are_no_failure() -> None:
    before, after = spread(100.0, 10, 0.001), spread(96.0, 10, 0.001)
    rule = {"smallest_effect": 0.02, "drop_to_exclude": 0.0}
    chance = compare(before, after, higher_is_better=True, error=1e-3, **rule).p_worse
    for error, outcome in ((chance, Outcome.INCONCLUSIVE), (math.nextafter(chance, 1), Outcome.FAILED)):
        assert compare(before, after, higher_is_better=True, error=error, **rule).outcome is outcome


def test_a_loss_that_spells_make_uncertain_is_no_failure() -> None:
    """Spells of four, shorter than a block: ranks are unlikely and the centre is low, but the interval reaches zero."""
    spells = [94.0, 94.1, 94.2, 94.3, 98.0, 98.1, 98.2, 98.3] * 4
    found = compare(spread(99.0, 32), spells, higher_is_better=True, **{**RULE, "drop_to_exclude": 0.0})
    assert found.p_worse < 1e-3
    assert found.change.centre < -0.02
    assert 0 < found.change.high < 1
    assert found.outcome is Outcome.INCONCLUSIVE


def test_a_pass_excludes_the_drop_strictly() -> None:
    before, after = spread(100.0), spread(99.0)
    low = compare(before, after, higher_is_better=True, **RULE).change.low
    rule = {**RULE, "smallest_effect": 0.5}
    at = compare(before, after, higher_is_better=True, **{**rule, "drop_to_exclude": -low})
    above = compare(before, after, higher_is_better=True, **{**rule, "drop_to_exclude": math.nextafter(-low, 1)})
    assert (at.outcome, above.outcome) == (Outcome.INCONCLUSIVE, Outcome.PASSED)
