"""Is what the server decodes what the model says? Signals in order of trust, each against an oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from glm5check import tolerances
from glm5check.checks import causes
from glm5check.checks.causes import Installation
from glm5check.records import Finding, Generation, Outcome, Scores, TokenChoice

__all__ = ["Question", "closed_questions", "greedy_ids", "mean_kl", "passage_nll", "token_logprobs"]

_Record = TypeVar("_Record", Scores, Generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A closed question: `form` is `completion` or `chat`, `answer` the text that a right model begins with."""

    name: str
    kind: str
    form: str
    prompt: str
    answer: str


def closed_questions(got: Mapping[str, Generation], questions: Sequence[Question]) -> list[Finding]:
    """Every question is answered with exactly its answer.

    Proves that the model talks and knows what it was trained on. Cannot see faults that leave memorised text intact:
    that is what `mean_kl` is for.
    """
    findings = []
    for question in questions:
        text = got[question.name].text.strip()
        right = text.startswith(question.answer.strip())
        findings.append(
            Finding(
                check="decode.closed_questions",
                outcome=Outcome.PASSED if right else Outcome.FAILED,
                got=repr(text[:60]),
                want=f"{question.answer.strip()!r}, which the model was trained to answer",
                where={"prompt": question.name, "form": question.form},
                cause="" if right else _cause_of_text(text),
            )
        )
    return findings or [_nothing("decode.closed_questions", "no question was asked")]


def mean_kl(
    got: Sequence[Scores], want: Sequence[Scores], installation: Installation, *, greedy_is_right: bool = True
) -> list[Finding]:
    """Mean over all positions of KL(oracle || server) on the same token ids.

    Over the whole vocabulary where both give it; else over the oracle's or the server's best tokens, with the rest as
    one bucket. The test with teeth: on random tokens nothing is memorised, so every weight matters. It cannot say which
    layer is wrong.
    """
    pairs = [(a, b) for ours, theirs in _paired(got, want) for a, b in zip(ours.tokens, theirs.tokens, strict=True)]
    if not pairs:
        return [_nothing("decode.mean_kl", "no scored position in common with the oracle")]
    values = np.array([kl_divergence(theirs, ours) for ours, theirs in pairs])
    bound = tolerances.MEAN_KL_REDUCED if installation.reduced else tolerances.MEAN_KL_FLOAT32
    mean = float(values.mean())
    right = math.isfinite(mean) and mean <= bound
    precision = "reduced precision" if installation.reduced else "float32"
    return [
        Finding(
            check="decode.mean_kl",
            outcome=Outcome.PASSED if right else Outcome.FAILED,
            got=f"{mean:.2g} nat over {len(pairs)} positions",
            want=f"at most {bound:g} nat in {precision}",
            where={"tp": str(installation.ranks or "unknown"), "prompts": str(len(got))},
            cause="" if right else causes.of_wrong_distribution(mean, greedy_is_right, installation),
            value=mean,
            bound=bound,
            unit="nat",
        )
    ]


def kl_divergence(want: TokenChoice, got: TokenChoice) -> float:
    """KL(want || got) in nats over the ids that both list, with everything else as one bucket.

    Infinite or NaN logprobs give NaN, which no gate lets pass.
    """
    ids = want.top.keys() & got.top.keys()
    if not ids:
        return math.nan
    p = np.exp(np.array([want.top[token] for token in ids], dtype=np.float64))
    log_q = np.array([got.top[token] for token in ids], dtype=np.float64)
    log_p = np.array([want.top[token] for token in ids], dtype=np.float64)
    if not (np.isfinite(log_p).all() and np.isfinite(log_q).all()):
        return math.nan
    divergence = float((p * (log_p - log_q)).sum())
    rest_p, rest_q = 1.0 - p.sum(), 1.0 - np.exp(log_q).sum()
    if len(ids) < max(len(want.top), len(got.top)) or len(ids) < 256:
        divergence += _bucket(rest_p, rest_q)
    return divergence


def greedy_ids(got: Sequence[Generation], want: Sequence[Generation], installation: Installation) -> list[Finding]:
    """Greedy token ids equal the oracle's up to the first near-tie.

    Where the oracle's two likeliest tokens are closer than rounding, either is right and the texts may part.
    """
    near = tolerances.NEAR_TIE_REDUCED if installation.reduced else tolerances.NEAR_TIE_FLOAT32
    findings = []
    for ours, theirs in _paired(got, want):
        at = next((i for i, (a, b) in enumerate(zip(ours.ids, theirs.ids, strict=False)) if a != b), None)
        margin = math.inf if at is None else theirs.tokens[at].margin
        right = at is None or margin < near
        findings.append(
            Finding(
                check="decode.greedy_ids",
                outcome=Outcome.PASSED if right else Outcome.FAILED,
                got="the oracle's ids" if at is None else f"token {ours.ids[at]} at position {at}",
                want="the oracle's ids" if at is None else f"token {theirs.ids[at]}, likelier by {margin:.3g} nat",
                where={"prompt": ours.prompt, "tp": str(installation.ranks or "unknown")},
                cause="" if right else causes.of_wrong_distribution(math.inf, False, installation),
                value=float(len(theirs.ids) if at is None else at),
                unit="tokens",
            )
        )
    return findings or [_nothing("decode.greedy_ids", "no generation in common with the oracle")]


def token_logprobs(got: Sequence[Scores], want: Sequence[Scores], installation: Installation) -> list[Finding]:
    """Logprobs of the scored tokens agree with the oracle's, on tokens that are not improbable.

    float32: the largest difference. Reduced precision: the median, since a router flip moves single tokens.
    """
    findings = []
    for ours, theirs in _paired(got, want):
        differences = [
            abs(a.logprob - b.logprob)
            for a, b in zip(ours.tokens, theirs.tokens, strict=True)
            if not b.logprob <= tolerances.LOGPROB_LIKELY
        ]
        if not differences:
            findings.append(_nothing("decode.token_logprobs", f"no likely token in {ours.prompt}"))
            continue
        value = float(np.median(differences) if installation.reduced else np.max(differences))
        bound = tolerances.LOGPROB_REDUCED if installation.reduced else tolerances.LOGPROB_FLOAT32
        kind = "median" if installation.reduced else "largest"
        right = math.isfinite(value) and value <= bound
        findings.append(
            Finding(
                check="decode.token_logprobs",
                outcome=Outcome.PASSED if right else Outcome.FAILED,
                got=f"{kind} difference {value:.2g} nat over {len(differences)} tokens",
                want=f"at most {bound:g} nat",
                where={"prompt": ours.prompt, "tp": str(installation.ranks or "unknown")},
                cause="" if right else causes.of_wrong_distribution(value, True, installation),
                value=value,
                bound=bound,
                unit="nat",
            )
        )
    return findings or [_nothing("decode.token_logprobs", "nothing in common with the oracle")]


def passage_nll(got: Sequence[Scores], want: Sequence[Scores], installation: Installation) -> list[Finding]:
    """Mean negative log-likelihood of a fixed passage lies within the gate of the oracle's, in both directions.

    The signal for faults that still read well. Cannot see what moves single tokens without moving the mean.
    """
    findings = []
    for ours, theirs in _paired(got, want):
        mine, its = _nll(ours), _nll(theirs)
        right = math.isfinite(mine) and abs(mine - its) <= tolerances.NLL_GATE
        findings.append(
            Finding(
                check="decode.passage_nll",
                outcome=Outcome.PASSED if right else Outcome.FAILED,
                got=f"{mine:.3f} nat a token",
                want=f"{its:.3f} (oracle) within {tolerances.NLL_GATE:g}",
                where={"prompt": ours.prompt, "tp": str(installation.ranks or "unknown")},
                cause="" if right else causes.of_wrong_distribution(abs(mine - its), True, installation),
                value=mine - its,
                bound=tolerances.NLL_GATE,
                unit="nat",
            )
        )
    return findings or [_nothing("decode.passage_nll", "nothing in common with the oracle")]


def _nll(scores: Scores) -> float:
    return -float(np.mean([choice.logprob for choice in scores.tokens]))


def _bucket(rest_p: float, rest_q: float) -> float:
    """The rest's share of the divergence; tails below 1e-9 are rounding."""
    if rest_p < 1e-9:
        return 0.0
    return float(rest_p * math.log(rest_p / max(rest_q, 1e-9)))


def _paired(got: Sequence[_Record], want: Sequence[_Record]) -> list[tuple[_Record, _Record]]:
    by_name = {record.prompt: record for record in want}
    return [(ours, by_name[ours.prompt]) for ours in got if ours.prompt in by_name]


def _cause_of_text(text: str) -> str:
    if not text:
        return "an empty answer: the chat template or the end-of-sequence ids"
    if len(set(text)) <= 2:
        return "one token over and over: NaN in the logits, or an all-reduce that returns wrong data"
    return "garbage decode: see the other decode tests for which kind"


def _nothing(check: str, why: str) -> Finding:
    return Finding(check=check, outcome=Outcome.INCONCLUSIVE, got=why, want="evidence")
