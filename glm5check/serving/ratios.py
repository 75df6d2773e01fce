"""Rules of speed that hold on any machine: ratios of two workloads, taken within the same round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from glm5check import tolerances
from glm5check.records import Measurement
from glm5check.serving.rounds import Series
from glm5check.serving.timing import LoadRun
from glm5check.serving.workloads import FIRST_TOKEN, LONG, PREFILL, ladder_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A measured ratio, the bound that it must keep, and why."""

    measured: Measurement
    bound: float
    reason: str


def ratios(series: Mapping[str, Series], rungs: tuple[int, ...], *, long_share: float = 1.0) -> list[Ratio]:
    """Every rule that the measured workloads allow, against one stream of the same round.

    `rungs` start at 1. `long_share` is what the roofline leaves of decode speed at long context (1 where unknown).
    """
    single = series[ladder_name(1)]
    found = [
        _ratio(
            f"{ladder_name(more)} / {ladder_name(fewer)}",
            series[ladder_name(more)],
            series[ladder_name(fewer)],
            lambda high, low: high.output_throughput / low.output_throughput,
            tolerances.LADDER_SHARE,
            "more streams share the reading of weights, so they must not give less in all",
        )
        for fewer, more in pairwise(rungs)
    ]
    found.append(
        _ratio(
            f"{LONG} / decode at short context",
            series[LONG],
            single,
            lambda long, short: long.decode_rate / short.decode_rate / long_share,
            tolerances.LONG_CONTEXT_SHARE,
            f"the longer cache alone leaves {long_share:.0%} of the speed; attention must not cost much more",
        )
    )
    found.append(
        _ratio(
            f"{PREFILL} / decode of one stream",
            series[PREFILL],
            single,
            lambda prefill, decode: prefill.prefill_rate / decode.decode_rate,
            tolerances.PREFILL_FACTOR,
            "prefill reads the weights once for many tokens",
        )
    )
    found.append(
        _ratio(
            f"{FIRST_TOKEN} in decode steps",
            series[FIRST_TOKEN],
            single,
            lambda first, decode: first.completed[0].ttft * decode.decode_rate,
            tolerances.FIRST_TOKEN_STEPS,
            "the first token of a short prompt is one larger step and the way in and out of the server",
            higher=False,
        )
    )
    return found


def _ratio(
    name: str,
    above: Series,
    below: Series,
    of: Callable[[LoadRun, LoadRun], float],
    bound: float,
    reason: str,
    *,
    higher: bool = True,
) -> Ratio:
    pairs = zip(above.runs, below.runs, strict=False)
    values = [of(one, other) for one, other in pairs if one.completed and other.completed]
    samples = tuple(value for value in values if math.isfinite(value))
    measured = Measurement(name=name, unit="times", samples=samples, higher_is_better=higher)
    return Ratio(measured=measured, bound=bound, reason=reason)
