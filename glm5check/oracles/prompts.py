"""The prompts that servers, oracles and goldens are asked alike, and the files of texts that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from glm5check.errors import SetupError

RANDOM_PROMPTS: Final = 8
RANDOM_TOKENS: Final = 48
ORDINARY_SHARE: Final = 0.85
"""Special and padding tokens stand at the end of GLM's vocabulary."""
_SEED: Final = 5


class Text(msgspec.Struct, frozen=True):
    """One passage for teacher-forced scoring."""

    name: str
    text: str


def random_prompts(
    vocabulary: int, *, count: int = RANDOM_PROMPTS, length: int = RANDOM_TOKENS, kind: str = "random"
) -> dict[str, tuple[int, ...]]:
    """`count` prompts of `length` uniformly random ordinary token ids by name, the same in every run."""
    generator = np.random.default_rng([_SEED, length])
    highest = int(vocabulary * ORDINARY_SHARE)
    return {f"{kind}-{number}": tuple(map(int, generator.integers(0, highest, length))) for number in range(count)}


def read_passages(path: Path) -> list[Text]:
    """The passages of a JSON file: a list of objects with `name` and `text`. Raises SetupError if it is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Text])
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SetupError(
            f"cannot read the passages: {error}", where=str(path), do='give a JSON list of {"name", "text"}'
        ) from None
