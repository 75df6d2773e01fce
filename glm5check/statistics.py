"""Verdicts from repeated measurements: intervals for a median, a sequential floor verdict, a comparison of two runs.

Nothing here assumes a distribution. Speeds have long tails to the slow side (a neighbour, a garbage collection), so
means and standard deviations say little; order statistics and ranks do.

Samples of one session come in slow and fast spells, so n of them are worth fewer: every rule divides by the design
effect that the samples themselves show. What the rules really do is shown by simulation on recorded sessions
(tests/selftest/statistics), not by their formulas alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from glm5check.records import Outcome

MAX_SAMPLES: Final = 20_000
"""Most samples a side in a comparison; all pairs are formed, 8 bytes each, so 4,000 x 4,000 is 128 MB."""
MAX_PAIRS: Final = 16_000_000
MIN_COMPARED: Final = 8
"""Fewest samples a side whose spread says anything."""
BLOCK: Final = 9
"""Rounds whose median is looked at to see how far a run wanders: half of the first look."""
MIN_WORTH: Final = 4.0
"""Fewest independent samples of both sides together that leave a spread to estimate."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A median (or another centre) and the interval that holds the true one with probability `confidence`."""

    low: float
    centre: float
    high: float
    confidence: float

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"{self.centre:.4g} [too few samples for {self.confidence:.6g} confidence]"
        return f"{self.centre:.4g} [{self.low:.4g}, {self.high:.4g}]"


def design_effect(values: NDArray[np.float64]) -> float:
    """How many values, in measuring order, are worth one independent value: 1 + 2 x sum of autocorrelations.

    The sum ends before the first lag without a positive one (Geyer's initial positive sequence), at a quarter of the
    values at most. 1 for independent or constant values, about the length of a slow spell where there are such.
    """
    if np.all(values == values[0]):
        return 1.0  # whatever the rounding of their mean leaves of them
    centred = values - values.mean()
    power = float(centred @ centred)
    total = 0.0
    for lag in range(1, len(values) // 4 + 1):
        correlation = float(centred[:-lag] @ centred[lag:]) / power
        if correlation <= 0:
            break
        total += correlation
    return 1 + 2 * total


def median_interval(samples: Sequence[float], confidence: float) -> Interval:
    """Distribution-free interval for the median of samples in measuring order: the values that a sign test leaves.

    Each of n independent samples lies below the true median with probability 1/2, so a value with k samples below it
    is too low to be the median where P(Bin(n, 1/2) <= k) is at most (1 - confidence) / 2. Samples that fall below it in
    spells are worth fewer: n and k are divided by the design effect of "below or not". Without spells the interval runs
    from the k-th smallest to the k-th largest sample and is exact (Hollander, Wolfe, Nonparametric Statistical Methods,
    3.6). It is infinite where even the smallest sample could be the median (n = 5 at 95 %). ValueError without samples.
    """
    if not samples:
        raise ValueError("an interval needs at least one sample")
    values = np.asarray(samples, dtype=np.float64)
    low = _lower_end(values, (1 - confidence) / 2)
    high = -_lower_end(-values, (1 - confidence) / 2)
    return Interval(low, float(np.median(values)), high, confidence)


def _lower_end(values: NDArray[np.float64], tail: float) -> float:
    """The largest sample that, like all smaller ones, is too low to be the median."""
    end = -math.inf
    for candidate in np.sort(values)[: (len(values) + 1) // 2]:
        below = (values < candidate).astype(np.float64)
        effect = design_effect(below)
        # Rounded up, so that a hit is never lost to rounding.
        if _few(int(len(values) / effect), math.ceil(below.sum() / effect)) > tail:
            break
        end = float(candidate)
    return end


@cache
def _few(count: int, hits: int) -> float:
    """P(Bin(count, 1/2) <= hits)."""
    return float(stats.binom.cdf(hits, count, 0.5))


def share_interval(hits: int, total: int, confidence: float) -> Interval:
    """Clopper-Pearson interval for the probability behind `hits` of `total` independent trials."""
    if not 0 <= hits <= total or total == 0:
        raise ValueError(f"{hits} of {total} is no share")
    tail = (1 - confidence) / 2
    low = float(stats.beta.ppf(tail, hits, total - hits + 1)) if hits else 0.0
    high = float(stats.beta.ppf(1 - tail, hits + 1, total - hits)) if hits < total else 1.0
    return Interval(low, hits / total, high, confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """When to look at growing samples, and how often the whole of the looks may err on one side.

    The error is shared out equally over the looks (Bonferroni), so looking more often costs confidence at each look and
    never adds false alarms.
    """

    looks: tuple[int, ...]
    error: float

    def __post_init__(self) -> None:
        if not self.looks or list(self.looks) != sorted(set(self.looks)) or self.looks[0] < 1:
            raise ValueError(f"looks must be growing sample counts, not {self.looks}")
        if 0.5 ** self.looks[0] > self.error / len(self.looks):
            raise ValueError(f"{self.looks[0]} samples can never decide at error {self.error}")

    @property
    def confidence(self) -> float:
        """Two-sided confidence of the interval at each look."""
        return 1 - 2 * self.error / len(self.looks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a plan says so far. `final` is False while more samples may still decide."""

    outcome: Outcome
    interval: Interval
    used: int
    final: bool


def decide(samples: Sequence[float], floor: float, *, plan: Plan, higher_is_better: bool = True) -> Decision:
    """Sequential verdict of samples, in measuring order, against a floor (a ceiling where lower is better).

    At each look the interval of the samples so far decides: FAILED when all of it is on the bad side of the floor,
    PASSED when all of it is on the good side. The first look that decides counts, also when later samples are given.
    INCONCLUSIVE while neither holds; final once the last look has been taken.
    """
    if not samples:
        return Decision(
            outcome=Outcome.INCONCLUSIVE,
            interval=Interval(-math.inf, math.nan, math.inf, plan.confidence),
            used=0,
            final=False,
        )
    due = [look for look in plan.looks if look <= len(samples)]
    for look in due:
        interval = median_interval(samples[:look], plan.confidence)
        below, above = interval.high < floor, interval.low > floor
        if below or above:
            good = above if higher_is_better else below
            outcome = Outcome.PASSED if good else Outcome.FAILED
            return Decision(outcome=outcome, interval=interval, used=look, final=True)
    used = due[-1] if due else len(samples)
    interval = median_interval(samples[:used], plan.confidence)
    final = bool(due) and due[-1] == plan.looks[-1]
    return Decision(outcome=Outcome.INCONCLUSIVE, interval=interval, used=used, final=final)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sets of samples of one quantity. `change` is relative, positive where `after` is better.

    `p_worse` is the chance of ranks at least this bad if nothing changed and samples were independent (one-sided
    Mann-Whitney U); `change` allows for slow spells.
    """

    outcome: Outcome
    change: Interval
    p_worse: float
    before: float
    after: float


def compare(
    before: Sequence[float],
    after: Sequence[float],
    *,
    higher_is_better: bool,
    error: float,
    smallest_effect: float,
    drop_to_exclude: float,
) -> Comparison:
    """Judge `after` against `before` (positive samples in measuring order).

    FAILED when all of this holds: Mann-Whitney's p is under `error`; the interval of the change lies below 0; the
    typical change is a loss of `smallest_effect` or more, so that a real but tiny loss does not fail, and of more than
    either run wanders within itself, so that a slow spell does not. PASSED when the interval excludes a loss of
    `drop_to_exclude`. Otherwise INCONCLUSIVE: the samples cannot tell.
    Raises ValueError for samples that are empty, not positive, or too many to pair.
    """
    worse_is = "less" if higher_is_better else "greater"
    change = change_interval(before, after, 1 - 2 * error, higher_is_better=higher_is_better)
    p_worse = float(stats.mannwhitneyu(after, before, alternative=worse_is).pvalue)
    least = max(smallest_effect, wandering(before), wandering(after))
    if p_worse < error and change.high < 0 and change.centre <= -least:
        outcome = Outcome.FAILED
    elif change.low > -drop_to_exclude:
        outcome = Outcome.PASSED
    else:
        outcome = Outcome.INCONCLUSIVE
    return Comparison(
        outcome=outcome,
        change=change,
        p_worse=p_worse,
        before=float(np.median(before)),
        after=float(np.median(after)),
    )


def wandering(samples: Sequence[float]) -> float:
    """How far a run moves within itself: the range of the medians of its blocks of BLOCK rounds, relative."""
    logs = _logs(samples)
    medians = [float(np.median(block)) for block in np.array_split(logs, max(1, len(logs) // BLOCK))]
    return math.expm1(max(medians) - min(medians))


def change_interval(
    before: Sequence[float], after: Sequence[float], confidence: float, *, higher_is_better: bool
) -> Interval:
    """Estimate and interval of the relative change, positive where `after` is better.

    The centre is Hodges and Lehmann's: the median over all pairs of log(after) - log(before). Its standard error is
    that of normal samples, sqrt(pi/3 (s1^2/n1 + s2^2/n2)), with s from the median absolute deviation, so that single
    slow rounds do not widen it, and n divided by the design effect of the ranks, so that slow spells do. Student's t
    has n1 + n2 - 2 of these degrees of freedom. Where better means lower the logs are swapped, so 0.10 always reads "a
    tenth better". Infinite for fewer than MIN_COMPARED samples a side.
    """
    one, two = _logs(before), _logs(after)
    if len(one) * len(two) > MAX_PAIRS:
        raise ValueError(f"{len(one)} x {len(two)} samples are too many pairs")
    pairs = two[:, None] - one[None, :] if higher_is_better else one[:, None] - two[None, :]
    centre = float(np.median(pairs))
    worth = [len(logs) / design_effect(stats.rankdata(logs)) for logs in (one, two)]
    if min(len(one), len(two)) < MIN_COMPARED or sum(worth) <= MIN_WORTH:
        return Interval(-math.inf, math.expm1(centre), math.inf, confidence)
    squares = [float(stats.median_abs_deviation(logs, scale="normal")) ** 2 for logs in (one, two)]
    deviation = math.sqrt(math.pi / 3 * (squares[0] / worth[0] + squares[1] / worth[1]))
    reach = float(stats.t.ppf((1 + confidence) / 2, sum(worth) - 2)) * deviation
    return Interval(math.expm1(centre - reach), math.expm1(centre), math.expm1(centre + reach), confidence)


def _logs(samples: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(samples, dtype=np.float64)
    if not 0 < len(values) <= MAX_SAMPLES or not np.all(np.isfinite(values)) or not np.all(values > 0):
        raise ValueError(f"a comparison needs 1 to {MAX_SAMPLES} positive samples a side, not {len(values)}")
    return np.log(values)
