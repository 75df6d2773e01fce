"""What the user asked of the plugin, from the environment: every process of a vLLM server inherits it.

GLM5CHECK_FIXES       all (default) | none | comma list of upstream faults to step around
GLM5CHECK_FAULTS      comma list of faults to seed (self-tests only)
GLM5CHECK_ATTENTION   auto (default) | dense | sparse
GLM5CHECK_MTP         1 to demand the multi-token-prediction block of the file, 0 (default) to leave it alone
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
    mtp: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> PluginOptions:
        """Raises OptionError for a value that is not among the right ones."""
        attention = environment.get("GLM5CHECK_ATTENTION") or Attention.AUTO
        if attention not in list(Attention):
            raise _wrong("GLM5CHECK_ATTENTION", attention, list(Attention))
        mtp = environment.get("GLM5CHECK_MTP") or "0"
        if mtp not in ("0", "1"):
            raise _wrong("GLM5CHECK_MTP", mtp, ["0", "1"])
        return cls(
            fixes=environment.get("GLM5CHECK_FIXES") or "all",
            faults=split_names(environment.get("GLM5CHECK_FAULTS") or ""),
            attention=Attention(attention),
            mtp=mtp == "1",
        )


def split_names(text: str) -> tuple[str, ...]:
    """The names of a comma list, without blanks and empty parts."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _wrong(variable: str, value: str, right: list[str]) -> OptionError:
    return OptionError(f"{value!r} is no value of {variable}", where="environment", do=f"use one of {', '.join(right)}")
