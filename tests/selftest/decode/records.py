"""Small records with probabilities that a reader can follow, and checks that wait to be made of them."""

import math
from dataclasses import replace

from glm5check.checks import decode
from glm5check.checks.causes import Installation
from glm5check.records import Generation, Scores, TokenChoice

BROKEN = "HTTP 500: EngineDeadError"


def choice(token, *probabilities):
    """Token `token` of a vocabulary with these probabilities."""
    top = {i: math.log(p) for i, p in enumerate(probabilities)}
    return TokenChoice(token, top[token], top)


HALVES = choice(0, 0.5, 0.25, 0.25)
SURE = choice(0, 0.75, 0.125, 0.125)
OTHER = choice(1, 0.5, 0.25, 0.25)
TIED = choice(0, 0.4, 0.35, 0.25)
NAN = replace(HALVES, top={0: math.nan, 1: -1.0})


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


FLOAT = Installation(ranks=2, reduced=False)
REDUCED = Installation(ranks=2, reduced=True)


PLACES = dict.fromkeys(("embedding", "blk.0.attention", "blk.0.mlp", "norm"), (3.0, 4.0))


def logprobs(got, want, installation=FLOAT):
    return lambda: decode.token_logprobs(got, want, installation)


def shifted(record, by, start=0, end=None):
    moved = (
        replace(token, logprob=token.logprob - by) if start <= at < (end or len(record.tokens)) else token
        for at, token in enumerate(record.tokens)
    )
    return replace(record, tokens=tuple(moved))


def rescored(generation, *again, name=None):
    """The scores of a generation's prompt and tokens: `again` for the tokens."""
    before = (TokenChoice(8, -1.0), TokenChoice(9, -1.0))
    return Scores(
        prompt=name or generation.prompt, prompt_ids=generation.prompt_ids + generation.ids, tokens=(*before, *again)
    )


def twice(got, want, installation=REDUCED):
    return lambda: decode.same_generations("context.reuse", got, want, installation, cause="a stale page")


def scored_twice(got, want, installation=REDUCED):
    return lambda: decode.same_scores("context.reuse", got, want, installation, cause="a stale page")


def matched(generations, rescores, installation=REDUCED):
    return lambda: decode.decode_matches_prefill(generations, rescores, installation)


def agreed(got, first, second, installation=REDUCED):
    return lambda: decode.oracles_agree(got, {"transformers": first, "llama.cpp": second}, installation)


def hidden(installation=FLOAT, want=PLACES, **changes):
    got = want | {name.replace("_", "."): value for name, value in changes.items()}
    return lambda: decode.hidden_states("fox", got, want, installation)
