"""Two oracles that were written independently: where they agree they judge, where they differ neither does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from glm5check import tolerances
from glm5check.checks import causes
from glm5check.checks.causes import Installation
from glm5check.checks.decode.distributions import kl_divergence
from glm5check.checks.decode.judging import judged, nothing, paired, place, unanswered
from glm5check.records import Finding, Scores


def agreed_scores(first: Sequence[Scores], second: Sequence[Scores]) -> list[Scores]:
    """Those of `first` whose prompts `second` scores alike: the ones that may judge a server."""
    return [a for a, b in paired(first, second) if _divergence(a, b) <= tolerances.ORACLES_KL]


def oracles_agree(
    got: Sequence[Scores], oracles: Mapping[str, Sequence[Scores]], installation: Installation
) -> list[Finding]:
    """The server and both `oracles` give the same distributions: three-way agreement, one finding a prompt.

    A prompt on which the oracles differ (ties among the indexer's best tokens have no right answer) judges nobody. If
    that is so for more than half of the prompts, the comparison is inconclusive.
    """
    check = "decode.oracles_agree"
    (first_name, first), (second_name, second) = oracles.items()
    findings = unanswered(check, got)
    disputed = []
    others = {scores.prompt: scores for scores in second if not scores.error}
    for ours, theirs in paired(got, first):
        if ours.prompt not in others:
            continue
        between = _divergence(theirs, others[ours.prompt])
        to_first, to_second = _divergence(theirs, ours), _divergence(others[ours.prompt], ours)
        said = f"{first_name} {to_first:.2g}, {second_name} {to_second:.2g}, between them {between:.2g} nat"
        if not between <= tolerances.ORACLES_KL:
            disputed.append(f"{ours.prompt} ({said})")
            continue
        findings.append(
            judged(
                check,
                to_first <= tolerances.ORACLES_KL and to_second <= tolerances.ORACLES_KL,
                got=f"mean KL from {said}",
                want=f"at most {tolerances.ORACLES_KL:g} nat from both",
                where=place(ours, installation),
                cause=causes.of_wrong_distribution(to_first, True, installation),
                value=max(to_first, to_second),
                bound=tolerances.ORACLES_KL,
                unit="nat",
            )
        )
    if disputed and len(disputed) >= len(findings):
        findings.append(nothing(check, f"the oracles disagree, so neither judges: {'; '.join(disputed)}"))
    return findings or [nothing(check, "no prompt was scored by the server and both oracles")]


def _divergence(want: Scores, got: Scores) -> float:
    """Mean KL(want || got); infinite if it is no number, so that it agrees with nothing."""
    values = [kl_divergence(a, b) for a, b in zip(want.tokens, got.tokens, strict=True)]
    mean = float(np.mean(values)) if values else math.nan
    return mean if math.isfinite(mean) else math.inf
