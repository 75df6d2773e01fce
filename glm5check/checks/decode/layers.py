"""Hidden states of one prompt against an oracle, place by place: the first that differs is where the fault is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from glm5check import tolerances
from glm5check.checks.causes import Installation
from glm5check.checks.decode.judging import judged, nothing
from glm5check.records import Finding


def hidden_states(
    prompt: str,
    got: Mapping[str, Sequence[float]],
    want: Mapping[str, Sequence[float]],
    installation: Installation,
) -> list[Finding]:
    """The outputs of each attention and each MLP, at the last token of a prompt, equal the oracle's.

    Both map places (`blk.1.attention`, `blk.1.mlp`, in the order of computation) to values [hidden]. Only the first
    place that differs is a finding: everything behind it differs because of it.
    """
    check = "decode.hidden_states"
    places = [place for place in want if place in got]
    if not places:
        why = "no place in common with the oracle: compiled code calls no layer that a probe could watch"
        return [nothing(check, f"{why}; --glm5-serve-arg=--enforce-eager serves without")]
    bound = tolerances.HIDDEN_REDUCED if installation.reduced else tolerances.HIDDEN_FLOAT32
    errors = {place: relative_error(got[place], want[place]) for place in places}
    first = next((place for place, error in errors.items() if not error <= bound), None)
    shown = first or max(errors, key=lambda place: errors[place])
    return [
        judged(
            check,
            first is None,
            got=f"a relative error of {errors[shown]:.2g} in {shown}"
            + (", the first of " if first else ", the largest of ")
            + f"{len(places)} places",
            want=f"at most {bound:g}",
            where={"prompt": prompt, "layer": shown.rpartition(".")[0] or shown, "tp": str(installation.ranks or "?")},
            cause=_cause(shown),
            value=errors[shown],
            bound=bound,
        )
    ]


def relative_error(got: Sequence[float], want: Sequence[float]) -> float:
    """Euclidean length of the difference over that of the expected vector; NaN if any number is."""
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-30))


def _cause(place: str) -> str:
    if place == "embedding":
        return "the embedding: rows of another rank, or decoded as another quant type"
    if place.endswith(".attention"):
        return "this layer's attention: weights (tests/sharding), rotary positions, or the attention backend"
    if place.endswith(".mlp"):
        return "this layer's MLP: expert or shared-expert weights (tests/sharding), the router's scale, bias or gating"
    return "the final norm"
