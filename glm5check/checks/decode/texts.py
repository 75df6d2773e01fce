"""How garbage looks in text. Each sign may come from healthy text, so only two together are a verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from glm5check import tolerances
from glm5check.checks.decode.judging import judged, nothing, unanswered
from glm5check.records import Finding, Generation

REPLACEMENT: Final = "\ufffd"
"""What decoders write for bytes that are no UTF-8."""
_SPECIAL: Final = re.compile(r"<\|[a-z_]+\|>|\[gMASK\]|\[sMASK\]|\[MASK\]|<sop>|<eop>")
_MEANING: Final = {
    "tail cycle": "a unit repeated to the end: garbage decode, or stale inputs of decode steps",
    "replacement character": "bytes that are no UTF-8: garbage decode, or a detokeniser that cuts characters",
    "special token": "a special token in the content: end-of-sequence ids are missing, or the template is wrong",
    "no end": "a short question whose answer does not end: the end-of-sequence ids, or garbage decode",
}


def garbled_text(generations: Sequence[Generation], *, should_end: bool = True) -> list[Finding]:
    """Fewer than two signs of garbage in all answers together.

    One sign alone may come from healthy text; two signs in one answer, or one in two answers, do not.
    `should_end` is whether the prompts were short questions, whose answers end by themselves.
    """
    check = "decode.garbled_text"
    findings = unanswered(check, generations)
    answered = [generation for generation in generations if not generation.error]
    if not answered:
        return findings or [nothing(check, "nothing was generated")]
    signs = [(generation, sign) for generation in answered for sign in text_signals(generation, should_end=should_end)]
    shown = "; ".join(f"{sign} in {generation.prompt}: {generation.text[-40:]!r}" for generation, sign in signs[:6])
    findings.append(
        judged(
            check,
            len(signs) < tolerances.SIGNS_OF_GARBAGE,
            got=f"{len(signs)} signs of garbage in {len(answered)} answers" + (f": {shown}" if signs else ""),
            want=f"fewer than {tolerances.SIGNS_OF_GARBAGE}",
            where={"prompt": signs[0][0].prompt} if signs else {},
            cause=_MEANING[signs[0][1]] if signs else "",
            value=float(len(signs)),
            bound=float(tolerances.SIGNS_OF_GARBAGE),
        )
    )
    return findings


def text_signals(generation: Generation, *, should_end: bool = False) -> list[str]:
    """Names of the signs of garbage in one answer.

    A character that a cut-off answer ends in the middle of is no sign.
    """
    was_cut = generation.finish_reason == "length"
    text = generation.text.rstrip(REPLACEMENT) if was_cut else generation.text
    signs = []
    if has_tail_cycle(text):
        signs.append("tail cycle")
    if REPLACEMENT in text:
        signs.append("replacement character")
    if _SPECIAL.search(text):
        signs.append("special token")
    if should_end and was_cut:
        signs.append("no end")
    return signs


def has_tail_cycle(text: str) -> bool:
    """Whether the text ends in a unit of at most CYCLE_UNIT characters, CYCLE_REPEATS times and CYCLE_LENGTH long.

    Measured on healthy text: see the self-test, which counts alarms on everything that this project ships.
    """
    tail = text[-tolerances.CYCLE_WINDOW :]
    for unit in range(1, tolerances.CYCLE_UNIT + 1):
        needed = max(unit * tolerances.CYCLE_REPEATS, tolerances.CYCLE_LENGTH)
        end = tail[-needed:]
        if len(end) == needed and end[unit:] == end[:-unit]:
            return True
    return False
