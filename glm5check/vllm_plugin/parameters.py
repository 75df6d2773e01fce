"""What a worker's parameters hold: digests of their bytes, shapes, types and places, told to `/collective_rpc`."""

from __future__ import annotations

import hashlib
import time
from typing import Any, Final

import torch
from torch.nn.parameter import is_lazy

from glm5check.vllm_plugin.whitebox import returning_errors

CHUNK_BYTES: Final = 64 << 20
"""Bytes that are copied to the host at a time."""


class Parameters:
    """Mixed into `Probe`. The parameters of the served model, in the order in which the model lists them."""

    model_runner: Any

    @returning_errors
    def parameter_sizes(self) -> dict[str, int]:
        """Bytes of each parameter, by name; 0 where it was never materialised."""
        return {name: _size(parameter) for name, parameter in self.model_runner.model.named_parameters()}

    @returning_errors
    def parameter_digests(self, first: int, count: int) -> dict[str, Any]:
        """Parameters `first` to `first + count`, each as `describe` tells it, and the seconds that took."""
        from vllm.distributed import get_tensor_model_parallel_rank

        start = time.monotonic()
        listed = list(self.model_runner.model.named_parameters())[int(first) : int(first) + int(count)]
        described = {name: describe(self.model_runner.model, name, parameter) for name, parameter in listed}
        return {
            "rank": get_tensor_model_parallel_rank(),
            "parameters": described,
            "seconds": time.monotonic() - start,
        }


@returning_errors
def describe(model: torch.nn.Module, name: str, parameter: Any) -> dict[str, Any]:
    """One parameter. `types` are the quant types with which a GGUF layer decodes it, empty for others."""
    if is_lazy(parameter):
        return {"error": "never materialised"}
    return {
        "digest": digest(parameter.data),
        "shape": list(parameter.shape),
        "dtype": str(parameter.dtype).removeprefix("torch."),
        "address": parameter.data_ptr(),
        "device": str(parameter.device),
        "types": _types(model, name),
    }


def digest(tensor: torch.Tensor) -> str:
    """SHA-256 of the elements in logical order, whatever the strides; chunk by chunk through the host's memory."""
    total = hashlib.sha256()
    rows = tensor.detach().reshape(1) if tensor.ndim == 0 else tensor.detach()
    row_bytes = max(1, rows[:1].numel() * rows.element_size())
    for part in rows.split(max(1, CHUNK_BYTES // row_bytes)):
        total.update(part.contiguous().cpu().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def held_types(parameter: Any, *, one_for_all: bool) -> tuple[int, ...]:
    """The quant types that a GGUF type parameter stands for, in slot order. Its tensor's own bytes may be unset.

    Routed experts (`one_for_all`) decode all their parts with the type that came first, whatever the others have.
    """
    by_slot = parameter.shard_weight_type
    if not by_slot or one_for_all:
        return (parameter.weight_type,) * max(1, len(by_slot))
    logical = {"q": 0, "k": 1, "v": 2}
    return tuple(by_slot[slot] for slot in sorted(by_slot, key=lambda slot: logical.get(slot, slot)))


def _types(model: torch.nn.Module, name: str) -> list[int]:
    module, _, own = name.rpartition(".")
    if not own.endswith("qweight"):
        return []
    parameter = getattr(model.get_submodule(module), f"{own}_type")
    return list(held_types(parameter, one_for_all=own != "qweight"))


def _size(parameter: Any) -> int:
    return 0 if is_lazy(parameter) else parameter.numel() * parameter.element_size()
