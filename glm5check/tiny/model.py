"""The tiny model in transformers: made anew, or rebuilt from the tensors of its GGUF files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import GlmMoeDsaConfig, GlmMoeDsaForCausalLM

from glm5check.tiny.geometry import hf_config


def new_model(seed: int) -> GlmMoeDsaForCausalLM:
    """A freshly initialised model on the CPU, float32.

    Two things differ from the default initialisation, both against ties at the top-k border of the sparse attention:
    no padding token (its embedding row would be zero), and indexer keys with a random offset.
    """
    torch.manual_seed(seed)
    model = GlmMoeDsaForCausalLM(GlmMoeDsaConfig(**hf_config() | {"pad_token_id": None}))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.indexer.k_norm.bias.normal_()
    return model


def write_configs(folder: Path, config: dict[str, Any], generation: dict[str, Any]) -> None:
    """Write `config.json` and `generation_config.json`."""
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
