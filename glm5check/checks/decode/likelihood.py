"""Teacher-forced negative log-likelihood of fixed passages: the signal for faults that still read well."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from glm5check import tolerances
from glm5check.checks import causes
from glm5check.checks.causes import Installation
from glm5check.checks.decode.judging import judged, nothing, paired, place, unanswered
from glm5check.records import Finding, Scores, TokenChoice

_SLOPE = (
    "the error grows with position: rope base or YaRN scale, the sparse indexer (from index_topk on), or the KV cache "
    "layout (from a block or page border on)"
)


def passage_nll(got: Sequence[Scores], want: Sequence[Scores], installation: Installation) -> list[Finding]:
    """Mean negative log-likelihood of a fixed passage lies within the gate of the oracle's, in both directions.

    The signal for faults that still read well: a wrong router scale or gating function. Cannot see what moves single
    tokens without moving the mean.
    """
    check = "decode.passage_nll"
    findings = unanswered(check, got)
    for ours, theirs in paired(got, want):
        mine, its = nll(ours.tokens), nll(theirs.tokens)
        findings.append(
            judged(
                check,
                math.isfinite(mine) and abs(mine - its) <= tolerances.NLL_GATE,
                got=f"{mine:.3f} nat a token over {len(ours.tokens)}",
                want=f"{its:.3f} (oracle) within {tolerances.NLL_GATE:g}",
                where=place(ours, installation, worst=_worst(ours.tokens, theirs.tokens)),
                cause=causes.of_wrong_distribution(abs(mine - its), True, installation),
                value=mine - its,
                bound=tolerances.NLL_GATE,
                unit="nat",
            )
        )
    return findings or [nothing(check, "nothing in common with the oracle")]


def nll_by_window(got: Sequence[Scores], want: Sequence[Scores], installation: Installation) -> list[Finding]:
    """The same gate in every window of positions: faults that grow with position, or begin at one, show here.

    Windows start at tolerances.NLL_WINDOWS; a rest shorter than tolerances.NLL_WINDOW_MIN joins the window before it.
    """
    check = "decode.nll_by_window"
    findings = unanswered(check, got)
    for ours, theirs in paired(got, want):
        differences = []
        for start, end in windows(len(ours.tokens)):
            mine, its = nll(ours.tokens[start:end]), nll(theirs.tokens[start:end])
            differences.append(abs(mine - its))
            findings.append(
                judged(
                    check,
                    math.isfinite(mine) and abs(mine - its) <= tolerances.NLL_GATE,
                    got=f"{mine:.3f} nat a token",
                    want=f"{its:.3f} (oracle) within {tolerances.NLL_GATE:g}",
                    where=place(ours, installation, positions=f"{start + 1}..{end}"),
                    cause=_SLOPE
                    if differences[0] <= tolerances.NLL_GATE
                    else causes.of_wrong_distribution(abs(mine - its), True, installation),
                    value=mine - its,
                    bound=tolerances.NLL_GATE,
                    unit="nat",
                )
            )
    return findings or [nothing(check, "nothing in common with the oracle")]


def nll(tokens: Sequence[TokenChoice]) -> float:
    """Mean negative log-likelihood in nats; NaN of nothing."""
    return -float(np.mean([choice.logprob for choice in tokens])) if tokens else math.nan


def windows(length: int) -> list[tuple[int, int]]:
    """(start, end) of each window of `length` scored tokens."""
    starts = [start for start in tolerances.NLL_WINDOWS if start == 0 or length - start >= tolerances.NLL_WINDOW_MIN]
    return list(zip(starts, [*starts[1:], length], strict=True))


def _worst(mine: Sequence[TokenChoice], its: Sequence[TokenChoice]) -> str:
    """Where the two differ most, as `position 17: token 5 at -9.1 nat, not -0.2`."""
    differences = [abs(a.logprob - b.logprob) for a, b in zip(mine, its, strict=True)]
    at = int(np.nanargmax(differences)) if np.isfinite(differences).any() else 0
    return (
        f"position {at + 1}, token {mine[at].token_id} at {mine[at].logprob:.2f} nat instead of {its[at].logprob:.2f}"
    )
