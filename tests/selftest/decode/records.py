"""Small records with probabilities that a reader can follow, for the cases of this directory."""

import math
from dataclasses import replace

from glm5check.records import Generation, Scores, TokenChoice

BROKEN = "HTTP 500: EngineDeadError"


def choice(token, *probabilities):
    """Token `token` of a vocabulary with these probabilities."""
    top = {i: math.log(p) for i, p in enumerate(probabilities)}
    return TokenChoice(token, top[token], top)


HALVES = choice(0, 0.5, 0.25, 0.25)
SURE = choice(0, 0.75, 0.125, 0.125)
OTHER = choice(1, 0.5, 0.25, 0.25)


def scores(*tokens, name="text"):
    return Scores(prompt=name, prompt_ids=(9, *(token.token_id for token in tokens)), tokens=tokens)


def answer(*tokens, name="text", text="words", finish="length", **changes):
    """An answer behind a prompt of three tokens."""
    made = Generation(prompt=name, prompt_ids=(7, 8, 9), tokens=tokens, text=text, finish_reason=finish)
    return replace(made, **changes)


def ids(*tokens, finish="length", name="text"):
    """An answer of these ids."""
    return answer(*(TokenChoice(token, -0.1) for token in tokens), name=name, finish=finish)


def failed(name="broken", error=BROKEN):
    return Generation(prompt=name, error=error)


def failed_scores(name="broken", error=BROKEN):
    return Scores(prompt=name, prompt_ids=(), tokens=(), error=error)
