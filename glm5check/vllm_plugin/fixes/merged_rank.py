"""Merged layers take rank 0's rows on every rank."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import wraps
from typing import Any, Final

from glm5check.vllm_plugin.fixes.fix import Fix

_LOADERS: Final = ("load_merged_column_weight", "load_qkv_weight")


def is_needed() -> bool:
    """Whether the plugin takes the rank from its caller, and vLLM's merged layers do not pass it."""
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear
    from vllm_gguf_plugin.quantization.params import _GGUFParamLoadMixin

    relies_on_caller = "tp_rank" in inspect.getsource(_GGUFParamLoadMixin.load_merged_column_weight)
    return relies_on_caller and not passes_rank(inspect.getsource(MergedColumnParallelLinear.weight_loader_v2))


def passes_rank(source: str) -> bool:
    """Whether the Python `source` of a loader gives `tp_rank` to a call of `load_merged_column_weight`."""
    calls = [node for node in ast.walk(ast.parse(textwrap.dedent(source))) if isinstance(node, ast.Call)]
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "load_merged_column_weight"
        and any(keyword.arg == "tp_rank" for keyword in call.keywords)
        for call in calls
    )


def apply() -> None:
    """Gives the plugin's parameters the process's tensor-parallel rank where the caller gives none.

    Layers that are not split (`disable_tp`) stay whole: their shard is as long as the loaded tensor, which the plugin
    does not narrow.
    """
    from vllm_gguf_plugin.quantization.params import _GGUFParamLoadMixin

    for name in _LOADERS:
        setattr(_GGUFParamLoadMixin, name, _with_rank(getattr(_GGUFParamLoadMixin, name)))


def _with_rank(load: Any) -> Any:
    from vllm.distributed import get_tensor_model_parallel_rank

    @wraps(load)
    def load_for_rank(self: Any, loaded_weight: Any, **kwargs: Any) -> None:
        kwargs.setdefault("tp_rank", get_tensor_model_parallel_rank())
        load(self, loaded_weight, **kwargs)

    return load_for_rank


FIX = Fix(
    name="merged_rank",
    what="every rank loads rank 0's rows of gate_up_proj and qkv_proj: silent, shapes are right, memorised text stays "
    "right, the distribution of any other text is far off",
    versions="vllm-gguf-plugin 0.0.5 with vLLM 0.32.0, which no longer passes tp_rank; vLLM 0.24.0 passes it",
    is_needed=is_needed,
    apply=apply,
)
