"""Loading of the multi-token-prediction block as a drafter (`--speculative-config '{"method": "mtp", ...}'`).

vllm-gguf-plugin cannot: its loader builds the target model a second time, because it does not say which of the two
configs to build, and writes the drafter's HF config over the target's.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.utils.torch_utils import set_default_torch_dtype

from glm5check.vllm_plugin.adapter import GlmDsaAdapter


def install() -> None:
    """Makes the plugin's loader load a GLM-5 drafter; for everything else it stays as it is."""
    from vllm_gguf_plugin.loader import GGUFModelLoader

    load_model = GGUFModelLoader.load_model

    @wraps(load_model)
    def load_either(self: Any, vllm_config: Any, model_config: Any, prefix: str = "") -> torch.nn.Module:
        if model_config is vllm_config.model_config or not GlmDsaAdapter.matches(model_config.hf_config):
            target: torch.nn.Module = load_model(self, vllm_config, model_config, prefix)
            return target
        return _load_drafter(self, vllm_config, model_config, prefix)

    GGUFModelLoader.load_model = load_either


def _load_drafter(loader: Any, vllm_config: Any, model_config: Any, prefix: str) -> torch.nn.Module:
    from vllm_gguf_plugin import loader as plugin

    adapter = GlmDsaAdapter(model_config.hf_config)
    # The block is in the target's files, which the drafter's own config need not name.
    adapter.prepare_loading(loader._prepare_weights(vllm_config.model_config), model_config)
    vllm_config.quant_config.unquantized_modules.extend(adapter.load_spec.unquantized_modules)
    device = torch.device(vllm_config.device_config.device)
    with set_default_torch_dtype(model_config.dtype):
        with device:
            model: Any = plugin.initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
        model.load_weights(adapter.prepare_weights(model_config))
        process_weights_after_loading(model, model_config, device)
    built: torch.nn.Module = model
    return built
