"""What the user asked of the plugin, from the environment: every process of a vLLM server inherits it.

GLM5CHECK_FIXES       all (default) | none | comma list of upstream faults to step around
GLM5CHECK_FAULTS      comma list of faults to seed (self-tests only)
GLM5CHECK_ATTENTION   auto (default) | dense | sparse
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from glm5check.errors import OptionError


class Attention(StrEnum):
    """How DSA is served: AUTO is dense where that is exact or the only way, else sparse."""

    AUTO = "auto"
    DENSE = "dense"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """`fixes` is still unparsed: the registry of fixes knows its names."""

    fixes: str = "all"
    faults: tuple[str, ...] = ()
    attention: Attention = Attention.AUTO

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> PluginOptions:
        """Raises OptionError for a value that is not among the right ones."""
        attention = environment.get("GLM5CHECK_ATTENTION") or Attention.AUTO
        if attention not in list(Attention):
            raise OptionError(
                f"{attention!r} is no value of GLM5CHECK_ATTENTION",
                where="environment",
                do=f"use one of {', '.join(Attention)}",
            )
        return cls(
            fixes=environment.get("GLM5CHECK_FIXES") or "all",
            faults=split_names(environment.get("GLM5CHECK_FAULTS") or ""),
            attention=Attention(attention),
        )


def split_names(text: str) -> tuple[str, ...]:
    """The names of a comma list, without blanks and empty parts."""
    return tuple(name for part in text.split(",") if (name := part.strip()))
