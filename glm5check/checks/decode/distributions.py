"""Distributions, logprobs and greedy ids against an oracle or a golden."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from glm5check import tolerances
from glm5check.checks import causes
from glm5check.checks.causes import Installation
from glm5check.checks.decode.flips import mean_without_flips
from glm5check.checks.decode.judging import judged, nothing, paired, place, position_of, unanswered
from glm5check.records import Finding, Generation, Scores, TokenChoice


def mean_kl(
    got: Sequence[Scores], want: Sequence[Scores], installation: Installation, *, greedy_is_right: bool = True
) -> list[Finding]:
    """Mean over all positions of KL(oracle || server) on the same token ids.

    Over the whole vocabulary where both give it; else over the oracle's or the server's best tokens, with the rest as
    one bucket. The test with teeth: on random tokens nothing is memorised, so every weight matters. It cannot say which
    layer is wrong. In reduced precision the mean leaves out the few positions at which a router tie was decided
    otherwise (tolerances.ROUTER_FLIPS): right implementations differ by tenths of a nat there.
    """
    check = "decode.mean_kl"
    failed = unanswered(check, got)
    pairs = [(a, b) for ours, theirs in paired(got, want) for a, b in zip(ours.tokens, theirs.tokens, strict=True)]
    if not pairs:
        return failed or [nothing(check, "no scored position in common with the oracle")]
    values = np.array([kl_divergence(theirs, ours) for ours, theirs in pairs])
    bound = kl_bound(installation)
    mean = mean_without_flips(values) if installation.reduced else float(values.mean())
    precision = "reduced precision" if installation.reduced else "float32"
    finding = judged(
        check,
        math.isfinite(mean) and mean <= bound,
        got=f"{mean:.2g} nat over {len(pairs)} positions",
        want=f"at most {bound:g} nat in {precision}",
        where={"tp": str(installation.ranks or "unknown"), "prompts": str(len(got)), **_worst_prompt(got, want)},
        cause=causes.of_wrong_distribution(
            mean, greedy_is_right, installation, first_is_right=_first_is_right(got, want, mean)
        ),
        value=mean,
        bound=bound,
        unit="nat",
    )
    return [*failed, finding]


def _first_is_right(got: Sequence[Scores], want: Sequence[Scores], mean: float) -> bool:
    """Whether the divergence at the first position is a negligible part of the mean."""
    first = [kl_divergence(theirs.tokens[0], ours.tokens[0]) for ours, theirs in paired(got, want) if ours.tokens]
    return bool(first) and float(np.mean(first)) <= tolerances.FIRST_POSITION_SHARE * mean


def _worst_prompt(got: Sequence[Scores], want: Sequence[Scores]) -> dict[str, str]:
    """The prompt and position at which the two differ most, for the reader who wants to look."""
    name, at, largest = "", 0, -math.inf
    for ours, theirs in paired(got, want):
        values = [kl_divergence(b, a) for a, b in zip(ours.tokens, theirs.tokens, strict=True)]
        index = int(np.argmax(values))  # NaN counts as the largest
        if not values[index] <= largest:
            name, at, largest = ours.prompt, index + 1, values[index]
    return {"worst": f"{name} position {at} with {largest:.2g} nat"}


def kl_divergence(want: TokenChoice, got: TokenChoice) -> float:
    """KL(want || got) in nats over the ids that both list, with everything else as one bucket.

    Infinite or NaN logprobs, and those above 0, give NaN, which no gate lets pass.
    """
    ids = want.top.keys() & got.top.keys()
    if not ids:
        return math.nan
    log_p, log_q = np.array([(want.top[token], got.top[token]) for token in ids], dtype=np.float64).T
    if not all(np.isfinite(side).all() and side.max() <= tolerances.LOGPROB_ABOVE_ZERO for side in (log_p, log_q)):
        return math.nan
    p, q = np.exp(log_p), np.exp(log_q)
    divergence = float((p * (log_p - log_q)).sum())
    rest_p, rest_q = 1.0 - p.sum(), 1.0 - q.sum()
    if len(ids) < max(len(want.top), len(got.top)) or len(ids) < 256:
        divergence += _bucket(rest_p, rest_q)
    return divergence


def greedy_ids(got: Sequence[Generation], want: Sequence[Generation], installation: Installation) -> list[Finding]:
    """Greedy token ids equal the oracle's up to the first near-tie.

    Where the oracle's two likeliest tokens are closer than rounding, either is right and the texts may part.
    """
    check = "decode.greedy_ids"
    findings = unanswered(check, got)
    for ours, theirs in paired(got, want):
        at = first_difference(ours, theirs)
        margin = math.inf if at is None else theirs.tokens[at].margin
        where = place(ours, installation)
        if at is not None:
            where["position"] = position_of(theirs.tokens, at, ours.prompt_ids)
        findings.append(
            judged(
                check,
                at is None or margin < near_tie(installation),
                got="the oracle's ids" if at is None else f"token {_id_at(ours, at)}",
                want="the oracle's ids" if at is None else f"token {theirs.ids[at]}, likelier by {margin:.3g} nat",
                where=where,
                cause=causes.of_wrong_distribution(math.inf, False, installation),
                value=float(len(theirs.ids) if at is None else at),
                unit="tokens",
            )
        )
    return findings or [nothing(check, "no generation in common with the oracle")]


def first_difference(ours: Generation, theirs: Generation) -> int | None:
    """Index of the first generated token that differs; None if the shorter answer begins the longer one.

    An answer that ended by itself is shorter than one that went on: that is a difference too.
    """
    at = next((i for i, (a, b) in enumerate(zip(ours.ids, theirs.ids, strict=False)) if a != b), None)
    if at is None and len(ours.ids) < len(theirs.ids) and ours.finish_reason == "stop":
        return len(ours.ids)
    return at


def kl_bound(installation: Installation) -> float:
    """nat that the mean divergence of right distributions stays under."""
    return tolerances.MEAN_KL_REDUCED if installation.reduced else tolerances.MEAN_KL_FLOAT32


def near_tie(installation: Installation) -> float:
    """nat between the two likeliest tokens below which either may be chosen."""
    return tolerances.NEAR_TIE_REDUCED if installation.reduced else tolerances.NEAR_TIE_FLOAT32


def _id_at(generation: Generation, at: int) -> str:
    return str(generation.ids[at]) if at < len(generation.ids) else "none: the answer ended"


def token_logprobs(got: Sequence[Scores], want: Sequence[Scores], installation: Installation) -> list[Finding]:
    """Logprobs of the scored tokens agree with the oracle's, on tokens that are not improbable.

    float32: the largest difference. Reduced precision: the median, since a router flip moves single tokens.
    """
    check = "decode.token_logprobs"
    findings = unanswered(check, got)
    kind = "median" if installation.reduced else "largest"
    bound = tolerances.LOGPROB_REDUCED if installation.reduced else tolerances.LOGPROB_FLOAT32
    for ours, theirs in paired(got, want):
        differences = {
            at: abs(a.logprob - b.logprob)
            for at, (a, b) in enumerate(zip(ours.tokens, theirs.tokens, strict=True))
            if not b.logprob <= tolerances.LOGPROB_LIKELY
        }
        if not differences:
            continue
        values = np.array(list(differences.values()))
        value = float(np.median(values) if installation.reduced else np.max(values))
        worst = list(differences)[int(np.argmax(values))]
        findings.append(
            judged(
                check,
                math.isfinite(value) and value <= bound,
                got=f"{kind} difference {value:.2g} nat over {len(values)} tokens",
                want=f"at most {bound:g} nat",
                where=place(ours, installation, worst=f"position {worst + 1}, token {ours.tokens[worst].token_id}"),
                cause=causes.of_wrong_distribution(value, True, installation),
                value=value,
                bound=bound,
                unit="nat",
            )
        )
    return findings or [nothing(check, "no likely token in common with the oracle")]


def _bucket(rest_p: float, rest_q: float) -> float:
    """The rest's share of the divergence; tails below 1e-9 are rounding."""
    if rest_p < 1e-9:
        return 0.0
    return float(rest_p * math.log(rest_p / max(rest_q, 1e-9)))
