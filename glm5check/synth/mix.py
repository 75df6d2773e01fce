"""Which quant type each tensor of a synthetic set gets."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from gguf import GGMLQuantizationType

from glm5check.errors import OptionError
from glm5check.synth.blocks import FLOATS, QUANTISED
from glm5check.tiny.export import UNQUANTISED, QuantMix

MIXES: Final = ("Q4_K_XL", *(kind.name for kind in (*FLOATS, *QUANTISED)))
"""Names that `mix` knows: the published mix, or one type for every matrix that published sets quantise."""


def mix(name: str, *, layers: int, overrides: Sequence[str] = ()) -> QuantMix:
    """The mix called `name` for a model of that many layers; `overrides` (`GLOB=TYPE`) come first and in their order.

    Q4_K_XL is what UD-Q4_K_XL sets of GLM-5 have: experts in Q4_K (gate, up) and Q5_K (down; Q6_K in a few layers, here
    the last), everything else in Q8_0. Raises OptionError for a name that is none.
    """
    kinds = GGMLQuantizationType
    if name == "Q4_K_XL":
        base: QuantMix = (
            (f"blk.{layers - 1}.ffn_down_exps.weight", kinds.Q6_K),
            ("*.ffn_gate_exps.weight", kinds.Q4_K),
            ("*.ffn_up_exps.weight", kinds.Q4_K),
            ("*.ffn_down_exps.weight", kinds.Q5_K),
            ("*", kinds.Q8_0),
        )
    else:
        base = (("*", _type(name)),)
    return (*map(_override, overrides), *UNQUANTISED, *base)


def quant_type(tensor_name: str, chosen: QuantMix) -> GGMLQuantizationType:
    """The type that the first matching glob of the mix gives to a tensor. Raises OptionError if none matches."""
    for glob, kind in chosen:
        if fnmatchcase(tensor_name, glob):
            return kind
    raise OptionError(f"the mix says nothing about {tensor_name}", do="end it with a glob that matches everything")


def _override(text: str) -> tuple[str, GGMLQuantizationType]:
    glob, equals, name = text.rpartition("=")
    if not equals or not glob:
        raise OptionError(f"--quant={text} is no GLOB=TYPE", do="give it as --quant '*.attn_output.weight=Q6_K'")
    return glob, _type(name)


def _type(name: str) -> GGMLQuantizationType:
    if name not in MIXES[1:]:
        raise OptionError(f"{name} is no quant type that can be made", do=f"use one of {', '.join(MIXES)}")
    return GGMLQuantizationType[name]
