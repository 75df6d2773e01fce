"""The quant-type parameters of routed experts stay uninitialised after loading."""

from __future__ import annotations

from typing import Any

import torch

from glm5check.vllm_plugin.fixes.fix import Fix


def is_needed() -> bool:
    """Whether the plugin's MoE method leaves its parameters as the loader made them."""
    from vllm_gguf_plugin.quantization.fused_moe import GGUFMoEMethod

    return "process_weights_after_loading" not in vars(GGUFMoEMethod)


def apply() -> None:
    """Materialises the two type parameters once a layer is loaded, as the plugin does for linear layers."""
    from vllm_gguf_plugin.quantization.fused_moe import GGUFMoEMethod
    from vllm_gguf_plugin.quantization.params import _materialize_gguf_weight_type_parameter

    def process_weights_after_loading(self: Any, layer: torch.nn.Module) -> None:
        super(GGUFMoEMethod, self).process_weights_after_loading(layer)
        for name in ("w13_qweight_type", "w2_qweight_type"):
            _materialize_gguf_weight_type_parameter(layer, name)
            parameter = getattr(layer, name)
            parameter.data.fill_(parameter.weight_type)  # else it holds what its memory held

    GGUFMoEMethod.process_weights_after_loading = process_weights_after_loading


FIX = Fix(
    name="moe_types",
    what="w13_qweight_type and w2_qweight_type are never materialised: all that looks at all parameters stops with "
    "`uninitialized parameter`, such as compiled mode on CPUs and /weight_checker",
    versions="vllm-gguf-plugin 0.0.5",
    is_needed=is_needed,
    apply=apply,
)
