"""Faults of vLLM and vllm-gguf-plugin that glm5check steps around, each by a module of its own, switchable by name.

`GLM5CHECK_FIXES=none` leaves all of them in: the server still starts, and shows what upstream does.
"""

from __future__ import annotations

from typing import Final

from glm5check.errors import OptionError
from glm5check.vllm_plugin.fixes import cpu_rotary, cuda_kernels, merged_rank, moe_types
from glm5check.vllm_plugin.fixes.fix import Applied, Fix
from glm5check.vllm_plugin.options import split_names

ALL: Final = (merged_rank.FIX, cpu_rotary.FIX, moe_types.FIX, cuda_kernels.FIX)


def names() -> tuple[str, ...]:
    """The names that `apply` knows."""
    return tuple(fix.name for fix in ALL)


def chosen(spec: str) -> tuple[Fix, ...]:
    """The fixes that `spec` names: `all`, `none` or a comma list. Raises OptionError listing the right names."""
    if spec in ("all", "none"):
        return ALL if spec == "all" else ()
    wanted = split_names(spec)
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        raise OptionError(
            f"no fix is called {', '.join(unknown)}",
            where="GLM5CHECK_FIXES",
            do=f"use all, none, or some of {', '.join(names())}",
        )
    return tuple(fix for fix in ALL if fix.name in wanted)


def apply(spec: str) -> Applied:
    """Applies the fixes that `spec` names and the installed versions need, and says which."""
    wanted = chosen(spec)
    needed = [fix for fix in ALL if fix.is_needed()]
    for fix in needed:
        if fix in wanted:
            fix.apply()
    return Applied(
        applied=tuple(fix.name for fix in needed if fix in wanted),
        left_out=tuple(fix.name for fix in needed if fix not in wanted),
        not_needed=tuple(fix.name for fix in ALL if fix not in needed),
    )
