"""Who says what is right: transformers on the dequantised GGUF, llama.cpp on the file, a server, a golden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from glm5check.records import Generation, Scores


class Oracle(Protocol):
    """Anything that scores and continues token ids as the model should."""

    name: str

    def score(self, name: str, prompt_ids: Sequence[int]) -> Scores:
        """Teacher-forced scores: the whole distribution at every position but the first, or the best of it."""
        ...

    def generate(self, name: str, prompt_ids: Sequence[int], *, max_tokens: int) -> Generation:
        """Greedy continuation with the alternatives at each position; stops after an end-of-sequence id."""
        ...


@runtime_checkable
class WhiteBoxOracle(Oracle, Protocol):
    """An oracle that shows its inside too."""

    def hidden_states(self, ids: Sequence[int]) -> dict[str, tuple[float, ...]]:
        """Outputs of every attention and MLP at the last of `ids`, by place in the order of computation."""
        ...
