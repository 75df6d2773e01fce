"""An oracle behind HTTP: any OpenAI-compatible server of the same model, such as llama.cpp's (`--glm5-oracle URL`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from glm5check.errors import UnsupportedError
from glm5check.records import Generation, Scores, TokenChoice
from glm5check.serving.client import Client
from glm5check.serving.launch import attach

TOP: Final = 256
"""Alternatives asked for at each position; everything else is one bucket."""

_HARMLESS: Final = "0"
"""Id of `!`, the first byte of every byte-level vocabulary."""


class ServerOracle:
    """One server that is trusted, `client` to it. Close it, or use it as a context manager.

    A server without `prompt_logprobs` (llama.cpp) is asked for one token after every prefix instead: slower, the same
    numbers. Raises ServerError if it does not answer.
    """

    def __init__(self, url: str, *, served_model: str | None = None, api_key: str = "", top: int = TOP) -> None:
        with attach(url, served_model=served_model, api_key=api_key) as server:
            self.client = Client(url, server.model, api_key=api_key)
            self.name = f"{server.model.rpartition('/')[2]} at {self.client.base_url}"
        self._top = top
        self._has_prompt_logprobs = True

    def __enter__(self) -> ServerOracle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.client.close()

    def score(self, name: str, prompt_ids: Sequence[int]) -> Scores:
        """The best of each distribution, at every position but the first."""
        if self._has_prompt_logprobs:
            try:
                return self.client.score(name, prompt_ids, top=self._top)
            except UnsupportedError:
                self._has_prompt_logprobs = False
        return score_by_prefixes(self.client, name, prompt_ids, top=self._top)

    def generate(self, name: str, prompt_ids: Sequence[int], *, max_tokens: int) -> Generation:
        """Greedy continuation with the best alternatives at each position."""
        return self.client.complete(name, prompt_ids, max_tokens=max_tokens, top=self._top)


def score_by_prefixes(client: Client, name: str, prompt_ids: Sequence[int], *, top: int) -> Scores:
    """Scores of a text by asking for one token after each of its prefixes.

    A token that is not among the `top` best has the logprob of the worst of them, so the text's likelihood is an upper
    bound there. The server is made to generate `!`, which leaves the logprobs as they are: llama.cpp gives none for a
    token that ends within a UTF-8 character.
    """
    tokens = []
    for end in range(1, len(prompt_ids)):
        answer = client.complete(
            name, prompt_ids[:end], max_tokens=1, top=top, cache_prompt=True, logit_bias={_HARMLESS: 100}
        )
        best = answer.tokens[0].top
        token = prompt_ids[end]
        tokens.append(TokenChoice(token, best.get(token, min(best.values())), best))
    return Scores(prompt=name, prompt_ids=tuple(prompt_ids), tokens=tuple(tokens))
