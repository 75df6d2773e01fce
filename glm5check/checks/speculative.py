"""Speculative decoding: the same text as without it, and drafts that are accepted where they must be."""

from __future__ import annotations

from collections.abc import Sequence

from glm5check import tolerances
from glm5check.checks.causes import Installation
from glm5check.checks.decode.consistency import same_generations
from glm5check.checks.decode.judging import judged, nothing
from glm5check.records import Acceptance, Finding, Generation


def lossless(
    with_drafts: Sequence[Generation], without: Sequence[Generation], installation: Installation
) -> list[Finding]:
    """Greedy text does not change when drafts are verified, up to the first near-tie.

    A draft may only be accepted where it is what the model would have said.
    """
    return same_generations(
        "speculative.lossless",
        with_drafts,
        without,
        installation,
        cause="a draft was accepted that the model would not have chosen, or KV state of rejected drafts was kept",
    )


def acceptance(measured: Acceptance | None) -> list[Finding]:
    """On repetitive text drafts are accepted: at least a floor at every position that was drafted often enough.

    A canary more than a speed test: an all-reduce or a graph that computes wrongly shows as no acceptance at all, and a
    multi-token-prediction head whose norm was lost as one that drops after the first position.
    """
    check = "speculative.acceptance"
    if measured is None or not measured.drafts:
        return [nothing(check, "the server verified no draft")]
    if measured.drafts < tolerances.DRAFTS_MIN:
        return [nothing(check, f"only {measured.drafts:.0f} drafts, {tolerances.DRAFTS_MIN} are needed")]
    findings = []
    for position, accepted in enumerate(measured.accepted):
        share = accepted / measured.drafts
        findings.append(
            judged(
                check,
                share >= tolerances.ACCEPTED_MIN,
                got=f"{share:.0%} of {measured.drafts:.0f} drafts",
                want=f"at least {tolerances.ACCEPTED_MIN:.0%} on text that repeats itself",
                where={"position": str(position)},
                cause="verification compares with wrong logits"
                if position == 0
                else "drafts go wrong after their first token: state of the drafter is not carried on",
                value=share,
                bound=tolerances.ACCEPTED_MIN,
            )
        )
    return findings or [nothing(check, "the server does not count at which positions drafts are accepted")]
