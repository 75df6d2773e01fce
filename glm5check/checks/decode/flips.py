"""Router ties: in reduced precision, single positions of a right server differ by tenths of a nat.

Two of a router's logits can be closer than rounding. Batches of another size run other kernels, which round otherwise,
and choose another expert there. The texts around such a position are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glm5check import tolerances


@dataclass(frozen=True, slots=True)
class Divergence:
    """Mean KL of one text in nats; `flip` is the position that it leaves out and `flipped` what is there."""

    mean: float
    flip: int | None = None
    flipped: float = 0.0

    def over(self, what: str) -> str:
        """The mean in words, over so many of `what`."""
        said = f"a mean KL of {self.mean:.2g} nat over {what}"
        if self.flip is None:
            return said
        return f"{said} without one, where a router flip explains {self.flipped:.2g} nat (number {self.flip + 1})"


def mean_divergences(values: Sequence[Sequence[float]], bound: float, *, reduced: bool) -> list[Divergence]:
    """The mean of each text's divergences, 0 for a text without any.

    In reduced precision a text of FLIP_TEXT_MIN positions may leave out its worst one, if that stands out
    (KL_OF_ONE_POSITION) and the others are within `bound`, as long as the positions left out are no more than
    ROUTER_FLIPS of all, rounded up. NaN is never left out.
    """
    left = math.ceil(tolerances.ROUTER_FLIPS * sum(map(len, values))) if reduced else 0
    found = []
    for text in values:
        mean = math.fsum(text) / len(text) if text else 0.0
        worst = max(text, default=0.0)
        rest = (math.fsum(text) - worst) / (len(text) - 1) if len(text) > 1 else math.inf
        stands_out = len(text) >= tolerances.FLIP_TEXT_MIN and worst > tolerances.KL_OF_ONE_POSITION * bound
        if left and mean > bound and rest <= bound and stands_out:
            left -= 1
            found.append(Divergence(rest, text.index(worst), worst))
        else:
            found.append(Divergence(mean))
    return found


def mean_without_flips(values: NDArray[np.float64]) -> float:
    """Mean without the largest share tolerances.ROUTER_FLIPS; NaN if any value is."""
    kept = len(values) - int(len(values) * tolerances.ROUTER_FLIPS)
    return math.nan if np.isnan(values).any() else float(np.sort(values)[:kept].mean())
