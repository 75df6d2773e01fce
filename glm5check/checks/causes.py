"""The one likely cause of a symptom, from how the symptom looks and from what is known of the installation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MERGED_RANK: Final = (
    "merged layers (gate_up of dense and shared-expert MLPs) load rank 0's rows on every rank: vllm-gguf-plugin takes "
    "tp_rank from an argument that vLLM >= 0.26 no longer passes and defaults it to 0"
)
CPU_ROTARY: Final = (
    "vLLM's CPU rotary kernel treats MLA's 3-D queries as 2-D, so every position is rotated wrongly in eager mode"
)
ATTENTION_SCORES: Final = (
    "attention scores: the first position, which attends to itself alone, is right, and those behind it are not: rope "
    "base or scale, attention scale, rotary kernel, or weights of queries and keys"
)
KL_OF_BROKEN_POSITIONS: Final = 1.0
"""nat. Above it the model does not know where tokens are; wrong rows in some layers stay below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What is known of the server beside its answers.

    `open_faults` maps the name of each upstream fix that this installation needs and does not have to what is wrong.
    `reduced` says that it computes in less than float32, so wider tolerances hold.
    """

    ranks: int | None = None
    reduced: bool = True
    open_faults: tuple[tuple[str, str], ...] = ()
    seeded_faults: tuple[str, ...] = ()


def of_wrong_distribution(
    kl: float, greedy_is_right: bool, installation: Installation, *, first_is_right: bool = False
) -> str:
    """Why distributions differ from the oracle's by `kl` nats on average.

    Greedy answers that stay right while random text is judged wrongly point at some layers computing with wrong
    weights; answers that break point at positions or at the whole forward pass. A first position that is right
    (`first_is_right`) acquits everything but attention scores: it attends to itself alone, whatever its score.
    """
    if installation.open_faults:
        return "; and ".join(what for _, what in installation.open_faults)
    if first_is_right:
        return ATTENTION_SCORES
    if (installation.ranks or 1) > 1 and kl < KL_OF_BROKEN_POSITIONS and greedy_is_right:
        return MERGED_RANK + " (run tests/sharding to see which layer and rank)"
    if kl >= KL_OF_BROKEN_POSITIONS:
        return (
            "positions or attention: wrong rotary kernel, attention backend or rope base (compare with --enforce-eager)"
        )
    return "some layers compute with other weights or scales than the file's: run tests/sharding and tests/checkpoint"


def of_error(error: str) -> str:
    """Why a request failed, from the words of the failure."""
    lowered = error.lower()
    if "out of range float" in lowered or "nan" in lowered.split() or "no json object" in lowered:
        return (
            "NaN or infinity in the logits: rows of a padded batch that no kernel wrote, a router that divides 0 by 0, "
            "or an overflow; the server cannot put it into JSON"
        )
    if "in time" in lowered or "timed out" in lowered:
        return "a worker hangs, in a collective or in a graph capture; the API process still answers GET requests"
    if "enginedead" in lowered or "cannot be reached" in lowered or "http 500" in lowered:
        return "the engine died while it served this request: the server's log has the first error"
    return "the server's log says more"
