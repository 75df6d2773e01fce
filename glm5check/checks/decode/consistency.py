"""The server against itself: what it said while decoding against what it says of the same text as a prompt.

No reference is needed, and faults of the decode path alone show: an attention backend that writes into another tensor
than it returns, graphs that replay stale positions or lengths, a KV block that is read wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from glm5check import tolerances
from glm5check.checks.causes import Installation
from glm5check.checks.decode.distributions import first_difference, kl_bound, kl_divergence, near_tie
from glm5check.checks.decode.flips import Divergence, mean_divergences
from glm5check.checks.decode.judging import judged, nothing, paired, place, position_of, unanswered
from glm5check.records import Finding, Generation, Scores, TokenChoice

_FROM_THE_START: Final = (
    "decode computes another function than prefill: the decode attention backend (which tensor does it write, which "
    "does it return), or a kernel of small batches"
)
_LATER: Final = (
    "decode goes wrong after some steps: positions, sequence lengths or block table that a graph replays, or a KV "
    "block border"
)


def decode_matches_prefill(
    generations: Sequence[Generation], rescored: Sequence[Scores], installation: Installation
) -> list[Finding]:
    """The distributions that the server decoded from equal those that it gives for the same text as a prompt.

    `rescored` are its scores of `prompt_ids + ids`. Compared are the mean KL over the generated tokens, and the share
    of positions at which the same token is likeliest.
    """
    check = "decode.decode_matches_prefill"
    findings = [*unanswered(check, generations), *unanswered(check, rescored)]
    # By text, not by name: the same prompt may have been continued in two ways.
    by_text = {scores.prompt_ids: scores for scores in rescored if not scores.error}
    pairs = [
        (generation, scores.tokens[len(generation.prompt_ids) - 1 :])
        for generation in generations
        if generation.tokens and (scores := by_text.get(generation.prompt_ids + generation.ids))
    ]
    values = [
        [kl_divergence(scored, said) for said, scored in zip(generation.tokens, again, strict=True)]
        for generation, again in pairs
    ]
    means = mean_divergences(values, kl_bound(installation), reduced=installation.reduced)
    for (generation, again), at_each, divergence in zip(pairs, values, means, strict=True):
        findings.append(_consistent(check, generation, again, at_each, divergence, installation))
    return findings or [nothing(check, "no generation was scored again")]


def _consistent(
    check: str,
    generation: Generation,
    again: Sequence[TokenChoice],
    values: Sequence[float],
    divergence: Divergence,
    installation: Installation,
) -> Finding:
    bound, mean = kl_bound(installation), divergence.mean
    over = [i for i, value in enumerate(values) if not value <= tolerances.KL_OF_ONE_POSITION * bound]
    where = place(generation, installation)
    got = divergence.over(f"{len(values)} tokens")
    if over and not mean <= bound:
        said, scored = generation.tokens[over[0]], again[over[0]]
        where["position"] = position_of(generation.tokens, over[0], generation.prompt_ids)
        got += f"; token {said.token_id} at {said.logprob:.3f} nat while decoding, {scored.logprob:.3f} as a prompt"
    return judged(
        check,
        math.isfinite(mean) and mean <= bound,
        got=got,
        want=f"at most {bound:g} nat: decode and prefill are the same function",
        where=where,
        cause=_FROM_THE_START if over and over[0] <= 1 else _LATER,
        value=mean,
        bound=bound,
        unit="nat",
    )


def same_scores(
    check: str, got: Sequence[Scores], want: Sequence[Scores], installation: Installation, *, cause: str
) -> list[Finding]:
    """Two scorings of the same token ids by one server are the same function: mean KL within the decode bound.

    `check` names the occasion (a prefix-cache hit, a chunked prefill, the end of a soak) and `cause` what it points at.
    """
    findings = [*unanswered(check, got), *unanswered(check, want)]
    bound, pairs = kl_bound(installation), list(paired(got, want))
    every = [[kl_divergence(b, a) for a, b in zip(one.tokens, two.tokens, strict=True)] for one, two in pairs]
    means = mean_divergences(every, bound, reduced=installation.reduced)
    for (ours, _), values, divergence in zip(pairs, every, means, strict=True):
        mean, at = divergence.mean, int(np.argmax(values))
        findings.append(
            judged(
                check,
                math.isfinite(mean) and mean <= bound,
                got=f"{divergence.over(f'{len(values)} positions')}, {values[at]:.2g} at position {at + 1}",
                want=f"at most {bound:g} nat between two scorings of the same prompt",
                where=place(ours, installation),
                cause=cause,
                value=mean,
                bound=bound,
                unit="nat",
            )
        )
    return findings or [nothing(check, "no prompt was scored twice")]


def same_generations(
    check: str, got: Sequence[Generation], want: Sequence[Generation], installation: Installation, *, cause: str
) -> list[Finding]:
    """Two answers of one model to the same prompt have the same distributions, up to where they part at a near-tie.

    `check` names the occasion and `cause` what a difference points at. Parting where the two likeliest tokens are
    further apart than rounding is a failure, and so is a mean KL above the decode bound before it.
    """
    findings = [*unanswered(check, got), *unanswered(check, want)]
    bound, pairs = kl_bound(installation), list(paired(got, want))
    parting = [first_difference(one, two) for one, two in pairs]
    # Up to the first difference, or to the end of the shorter one.
    shared = [
        list(zip(one.tokens, two.tokens, strict=False))[:parted]
        for (one, two), parted in zip(pairs, parting, strict=True)
    ]
    values = [[kl_divergence(b, a) for a, b in tokens] for tokens in shared]
    means = mean_divergences(values, bound, reduced=installation.reduced)
    for (ours, theirs), parted, common, divergence in zip(pairs, parting, shared, means, strict=True):
        mean = divergence.mean
        margin = math.inf if parted is None else theirs.tokens[parted].margin
        where = place(ours, installation)
        text = divergence.over(f"{len(common)} tokens")
        if parted is not None:
            where["position"] = position_of(theirs.tokens, parted, ours.prompt_ids)
            ids = f"{ours.ids[parted] if parted < len(ours.ids) else 'the end'} instead of {theirs.ids[parted]}"
            text += f", then token {ids}, which was likelier by {margin:.3g} nat"
        findings.append(
            judged(
                check,
                math.isfinite(mean) and mean <= bound and (parted is None or margin < near_tie(installation)),
                got=text,
                want=f"at most {bound:g} nat, and the same tokens up to a near-tie",
                where=where,
                cause=cause,
                value=mean,
                bound=bound,
                unit="nat",
            )
        )
    return findings or [nothing(check, "no prompt was answered twice")]
