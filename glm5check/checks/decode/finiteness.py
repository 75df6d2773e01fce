"""The most trusted signals: a logprob that is no number, a request that fails, one token id over and over.

No healthy server shows any of them, so none needs a reference or a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from glm5check import tolerances
from glm5check.checks.decode.judging import judged, nothing, place, position_of, unanswered
from glm5check.records import Finding, Generation, Scores, TokenChoice

_NOT_A_NUMBER = (
    "NaN in the logits: padded rows that no kernel wrote, a router that divides 0 by 0, or an overflow in one layer "
    "(serve with VLLM_COMPUTE_NANS_IN_LOGITS=1 and look at vllm:corrupted_requests)"
)
_OF_ID_ZERO = "NaN logits, whose argmax is id 0 (`!` in GLM-5's vocabulary), or an all-reduce that returns wrong data"
_STUCK = "a decode step that sees the same input every time: stale positions, sequence lengths or KV blocks in a graph"


def finite_logprobs(records: Sequence[Generation | Scores]) -> list[Finding]:
    """Every request was answered and every logprob of it is a finite number of at most 0.

    Needs no reference. Catches NaN and infinity anywhere in the forward pass, also where sampling hides them: a
    request without logprobs would show healthy-looking text or `!!!!`.
    """
    check = "decode.finite_logprobs"
    findings = unanswered(check, records)
    for record in records:
        if record.error:
            continue
        at = next((i for i, choice in enumerate(record.tokens) if not _is_finite(choice)), None)
        where = place(record)
        if at is not None:
            start = record.prompt_ids if isinstance(record, Generation) else record.prompt_ids[:1]
            where["position"] = position_of(record.tokens, at, start)
        findings.append(
            judged(
                check,
                bool(record.tokens) and at is None,
                got=_said(record.tokens, at),
                want="a finite logprob for every token",
                where=where,
                cause=_NOT_A_NUMBER if record.tokens else "the server leaves logprobs out when they are no numbers",
            )
        )
    return findings or [nothing(check, "no request was made")]


def token_runs(generations: Sequence[Generation]) -> list[Finding]:
    """No generation gets stuck on one token id, and none holds a run of token id 0.

    A run counts where it reaches the end of an answer that was cut off: rules of dashes in healthy text end. Id 0 is
    what NaN logits decode to, so a shorter run of it counts anywhere. Works on ids; text may hide what a run is.
    """
    check = "decode.token_runs"
    findings = unanswered(check, generations)
    for generation in generations:
        if generation.error:
            continue
        run = stuck_run(generation)
        findings.append(
            judged(
                check,
                run is None,
                got="no run of one token" if run is None else f"token {run[0]} {run[2]} times in a row",
                want=f"fewer than {tolerances.RUN_OF_ONE_TOKEN} at the end, {tolerances.RUN_OF_TOKEN_ZERO} of token 0",
                where=place(generation)
                | ({"position": position_of(generation.tokens, run[1], generation.prompt_ids)} if run else {}),
                cause=_OF_ID_ZERO if run and run[0] == 0 else _STUCK,
                value=float(run[2]) if run else 0.0,
                bound=float(tolerances.RUN_OF_ONE_TOKEN),
                unit="tokens",
            )
        )
    return findings or [nothing(check, "nothing was generated")]


def stuck_run(generation: Generation) -> tuple[int, int, int] | None:
    """(token id, index of its first token, length) of a run that no healthy text has, or None."""
    at = 0
    for token, group in groupby(generation.ids):
        length = len(list(group))
        at += length
        is_stuck = at == len(generation.tokens) and generation.finish_reason != "stop"
        if (token == 0 and length >= tolerances.RUN_OF_TOKEN_ZERO) or (
            is_stuck and length >= tolerances.RUN_OF_ONE_TOKEN
        ):
            return token, at - length, length
    return None


def _is_finite(choice: TokenChoice) -> bool:
    return all(map(_is_logprob, _numbers(choice)))


def _numbers(choice: TokenChoice) -> list[float]:
    """Minus infinity is a number among the alternatives: a banned token has it."""
    return [choice.logprob, *(value for value in choice.top.values() if value != -math.inf)]


def _is_logprob(value: float) -> bool:
    return math.isfinite(value) and value <= tolerances.LOGPROB_ABOVE_ZERO


def _said(tokens: Sequence[TokenChoice], at: int | None) -> str:
    if not tokens:
        return "no logprob at all"
    if at is None:
        return f"{len(tokens)} finite logprobs"
    wrong = next(value for value in _numbers(tokens[at]) if not _is_logprob(value))
    return f"{wrong} for token {tokens[at].token_id}"
