"""Verdicts from repeated measurements: intervals for a median, a sequential floor verdict, a comparison of two runs.

Nothing here assumes a distribution. Speeds have long tails to the slow side (a neighbour, a garbage collection), so
means and standard deviations say little; order statistics and ranks do.

What all of it does assume is that samples are exchangeable. Samples of one session drift together, so what these rules
really do is shown by simulation on recorded sessions (tests/selftest/statistics), not by their formulas alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from glm5check.records import Outcome

MAX_SAMPLES: Final = 20_000
"""Most samples a side in a comparison; all pairs are formed, 8 bytes each, so 4,000 x 4,000 is 128 MB."""
MAX_PAIRS: Final = 16_000_000


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


def median_interval(samples: Sequence[float], confidence: float) -> Interval:
    """Exact distribution-free interval for the median: the k-th smallest to the k-th largest sample.

    Each of n samples lies below the true median with probability 1/2, so P(k-th smallest > median) = P(Bin(n, 1/2) <
    k). k is the largest for which both sides together leave out at most 1 - confidence; the interval is infinite where
    even k = 1 leaves out more (n = 5 at 95 %). Source: Hollander, Wolfe, Nonparametric Statistical Methods, 3.6.
    Raises ValueError without samples.
    """
    if not samples:
        raise ValueError("an interval needs at least one sample")
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    centre = float(np.median(ordered))
    # ppf gives the smallest j with P(Bin <= j) >= tail; one less is the largest with P(Bin <= j) < tail.
    tail = (1 - confidence) / 2
    k = int(stats.binom.ppf(tail, len(ordered), 0.5))
    if stats.binom.cdf(k, len(ordered), 0.5) <= tail:
        k += 1
    if k < 1:
        return Interval(-math.inf, centre, math.inf, confidence)
    return Interval(float(ordered[k - 1]), centre, float(ordered[-k]), confidence)


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

    `p_worse` is the chance of ranks at least this bad if nothing changed (one-sided Mann-Whitney U).
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
    """Judge `after` against `before` (positive samples).

    FAILED when both hold: Mann-Whitney's p is under `error`, and the typical change is a loss of `smallest_effect` or
    more, so that a real but tiny loss does not fail and a big but chance one does not either. PASSED when the interval
    of the change excludes a loss of `drop_to_exclude`. Otherwise INCONCLUSIVE: the samples cannot tell.
    Raises ValueError for samples that are empty, not positive, or too many to pair.
    """
    worse_is = "less" if higher_is_better else "greater"
    change = change_interval(before, after, 1 - 2 * error, higher_is_better=higher_is_better)
    p_worse = float(stats.mannwhitneyu(after, before, alternative=worse_is).pvalue)
    if p_worse < error and change.centre <= -smallest_effect:
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


def change_interval(
    before: Sequence[float], after: Sequence[float], confidence: float, *, higher_is_better: bool
) -> Interval:
    """Hodges-Lehmann estimate and interval of the relative change, positive where `after` is better.

    The centre is the median over all pairs of log(after) - log(before); the interval inverts the rank test: the K-th
    smallest and K-th largest pair, K = mn/2 - z sqrt(mn(m+n+1)/12) (normal approximation). Where better means lower the
    logs are swapped, so 0.10 always reads "a tenth better". Infinite where K < 1.
    """
    one, two = _logs(before), _logs(after)
    if len(one) * len(two) > MAX_PAIRS:
        raise ValueError(f"{len(one)} x {len(two)} samples are too many pairs")
    pairs = np.sort((two[:, None] - one[None, :] if higher_is_better else one[None, :] - two[:, None]).ravel())
    count = len(pairs)
    spread = math.sqrt(count * (len(one) + len(two) + 1) / 12)
    k = math.floor(count / 2 - float(stats.norm.ppf((1 + confidence) / 2)) * spread)
    centre = math.expm1(float(np.median(pairs)))
    if k < 1:
        return Interval(-math.inf, centre, math.inf, confidence)
    return Interval(math.expm1(float(pairs[k - 1])), centre, math.expm1(float(pairs[count - k])), confidence)


def _logs(samples: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(samples, dtype=np.float64)
    if not 0 < len(values) <= MAX_SAMPLES or not np.all(np.isfinite(values)) or not np.all(values > 0):
        raise ValueError(f"a comparison needs 1 to {MAX_SAMPLES} positive samples a side, not {len(values)}")
    return np.log(values)
