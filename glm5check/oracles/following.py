"""An oracle's greedy choices along an answer that somebody else gave."""

from __future__ import annotations

from glm5check.errors import UnsupportedError
from glm5check.oracles import Oracle
from glm5check.records import Generation, TokenChoice


def follow(oracle: Oracle, answer: Generation) -> Generation:
    """What `oracle` would have chosen at each token of `answer`, given the tokens before it.

    Up to the first difference that is its own greedy continuation, at the price of one forward pass instead of one a
    token. An oracle that cannot score other texts than its own (a golden) continues the prompt instead.
    """
    try:
        scores = oracle.score(answer.prompt, answer.prompt_ids + answer.ids)
    except UnsupportedError:
        return oracle.generate(answer.prompt, answer.prompt_ids, max_tokens=len(answer.ids))
    scored = scores.tokens[len(answer.prompt_ids) - 1 :]
    return Generation(
        prompt=answer.prompt,
        prompt_ids=answer.prompt_ids,
        tokens=tuple(_greedy(choice) for choice in scored),
        finish_reason=answer.finish_reason,
    )


def _greedy(choice: TokenChoice) -> TokenChoice:
    token = max(choice.top, key=lambda key: choice.top[key])
    return TokenChoice(token, choice.top[token], choice.top)
