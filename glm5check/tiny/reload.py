"""The way back: GGUF files of the tiny model as a transformers state dict and model, dequantised by gguf-py.

Used to score what was exported rather than what was trained, and by tests that compare a server with transformers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray
from transformers import GlmMoeDsaConfig, GlmMoeDsaForCausalLM

from glm5check.errors import CheckpointError
from glm5check.tiny.export import BLOCK_NAMES, GLOBAL_NAMES

_HF_BLOCK_NAMES = {gguf_name: hf_name for hf_name, gguf_name in BLOCK_NAMES.items()}
_HF_GLOBAL_NAMES = {gguf_name: hf_name for hf_name, gguf_name in GLOBAL_NAMES.items()}


def gguf_files(folder: Path) -> list[Path]:
    """The GGUF files of a folder in split order; raises CheckpointError if there is none."""
    files = sorted(folder.glob("*.gguf"))
    if not files:
        raise CheckpointError("no GGUF file", where=str(folder), do="build the model: python -m glm5check.tiny DIR")
    return files


def read_tensors(files: Iterable[Path]) -> dict[str, NDArray[np.float32]]:
    """GGUF name -> dequantised float32 values in numpy order, over all files."""
    tensors: dict[str, NDArray[np.float32]] = {}
    for path in files:
        for tensor in GGUFReader(path).tensors:
            tensors[tensor.name] = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    return tensors


def state_dict_of(tensors: dict[str, NDArray[np.float32]]) -> dict[str, torch.Tensor]:
    """HF state dict (experts fused) from GGUF tensors; a tensor without a place raises KeyError."""
    rest = dict(tensors)
    state = {hf: rest.pop(name) for name, hf in _HF_GLOBAL_NAMES.items()}
    blocks = sorted({int(name.split(".")[1]) for name in rest})
    for block in blocks:
        prefix, hf_prefix = f"blk.{block}.", f"model.layers.{block}."
        k_b, v_b = rest.pop(f"{prefix}attn_k_b.weight"), rest.pop(f"{prefix}attn_v_b.weight")
        joined = np.concatenate([k_b.transpose(0, 2, 1), v_b], axis=1)
        state[f"{hf_prefix}self_attn.kv_b_proj.weight"] = joined.reshape(-1, joined.shape[-1])
        if f"{prefix}ffn_gate_exps.weight" in rest:
            gate, up = rest.pop(f"{prefix}ffn_gate_exps.weight"), rest.pop(f"{prefix}ffn_up_exps.weight")
            state[f"{hf_prefix}mlp.experts.gate_up_proj"] = np.concatenate([gate, up], axis=1)
    for name, values in rest.items():
        _, block_text, part = name.split(".", 2)
        state[f"model.layers.{block_text}.{_HF_BLOCK_NAMES[part]}"] = values
    return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in state.items()}


def load_model(folder: Path) -> GlmMoeDsaForCausalLM:
    """The model of `folder` (GGUF files and `config.json`) in float32 on the CPU; every tensor must find its place."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = GlmMoeDsaForCausalLM(GlmMoeDsaConfig(**config))
    model.load_state_dict(state_dict_of(read_tensors(gguf_files(folder))), strict=True)
    return model.eval()
