"""Long contexts, full contexts, shared prefixes, little KV memory, and many requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from glm5check.checks.decode.judging import judged, nothing, unanswered
from glm5check.records import Finding, Generation

_LOST: Final = (
    "the answer depends on where in the context it stands: the sparse indexer drops it (from index_topk on), a KV page "
    "is overwritten, or positions are rotated wrongly"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """A prompt of `size` tokens that holds `answer` at `depth` (0 first, 1 last), or in the model's memory (None)."""

    name: str
    size: int
    depth: float | None
    answer: str


def needles(got: Mapping[str, Generation], placed: Sequence[Needle]) -> list[Finding]:
    """Every needle is found, at every size and depth. Cannot see faults that leave the best token as it is."""
    check = "context.needles"
    findings = unanswered(check, list(got.values()))
    for needle in placed:
        answer = got[needle.name]
        if answer.error:
            continue
        where = {"prompt": needle.name, "size": str(needle.size)}
        if needle.depth is not None:
            where["depth"] = f"{needle.depth:.0%}"
        findings.append(
            judged(
                check,
                needle.answer in answer.text,
                got=repr(answer.text[:40]),
                want=f"{needle.answer!r}, which the {'model' if needle.depth is None else 'context'} holds",
                where=where,
                cause=_LOST,
            )
        )
    return findings or [nothing(check, "no needle was hidden")]


def ends_at_limit(full: Generation, expected_tokens: int, over: Generation, after: Generation) -> list[Finding]:
    """A request may fill the context to its last token; one that would pass it is refused, and the next is served.

    `full` filled the context with `expected_tokens` generated ones, `over` asked for one more, `after` came next.
    """
    check = "context.ends_at_limit"
    findings = unanswered(check, [full, after])
    if not full.error:
        right = full.finish_reason == "length" and len(full.tokens) == expected_tokens
        findings.append(
            judged(
                check,
                right,
                got=f"{len(full.tokens)} tokens, finish_reason {full.finish_reason}",
                want=f"{expected_tokens} tokens up to the limit, finish_reason length",
                where={"prompt": full.prompt, "position": str(len(full.prompt_ids) + len(full.tokens))},
                cause="the last position of the context is not usable: an off-by-one in block table or position buffer",
            )
        )
    findings.append(
        judged(
            check,
            "HTTP 400" in over.error,
            got=over.error[:80] or f"an answer of {len(over.tokens)} tokens",
            want="HTTP 400: the request does not fit into the context",
            where={"prompt": over.prompt},
            cause="the server computes beyond its context: what it reads there nobody wrote",
        )
    )
    return findings


def in_time(answers: Sequence[Generation], limit_s: float) -> list[Finding]:
    """Every request of a soak ended with an answer within its own time limit."""
    check = "context.in_time"
    failed = unanswered(check, answers)
    if failed:
        return failed
    if not answers:
        return [nothing(check, "no request was made")]
    got = f"{len(answers)} answers, {sum(len(answer.tokens) for answer in answers)} tokens"
    return [judged(check, True, got=got, want=f"an answer to each within {limit_s:g} s", where={})]


def was_preempted(count: float | None) -> list[Finding]:
    """The server ran out of KV memory and preempted requests: without that, what follows proves nothing."""
    check = "context.was_preempted"
    if not count:
        return [nothing(check, "the server preempted no request" if count == 0 else "the server counts no preemptions")]
    return [judged(check, True, got=f"{count:.0f} preemptions", want="at least one", where={})]


def was_cached(hits: float | None) -> list[Finding]:
    """The server took a prefix from its cache: without that, what follows proves nothing."""
    check = "context.was_cached"
    if not hits:
        return [nothing(check, "no prefix-cache hit (vLLM has no prefix cache for MLA on a CPU)")]
    return [judged(check, True, got=f"{hits:.0f} tokens from the cache", want="at least one", where={})]
