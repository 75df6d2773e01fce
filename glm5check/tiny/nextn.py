"""A next-token-prediction (MTP) block with random weights, for tests of readers and of counting rules.

GLM-5 has one behind its last layer: an ordinary MoE block plus the projection that joins the hidden state with the
embedding of the next token. Ours is not trained: nothing may be concluded from what it predicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

SEED: Final = 5


def nextn_block(state_dict: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """HF-named tensors of one block numbered `num_hidden_layers`, shaped as the last block of `state_dict`."""
    last, number, hidden = config["num_hidden_layers"] - 1, config["num_hidden_layers"], config["hidden_size"]
    generator = torch.Generator().manual_seed(SEED)
    shapes = {
        name.removeprefix(f"model.layers.{last}."): tuple(tensor.shape)
        for name, tensor in state_dict.items()
        if name.startswith(f"model.layers.{last}.")
    }
    shapes["eh_proj.weight"] = (hidden, 2 * hidden)
    block = {
        part: torch.randn(shape, generator=generator) * config["initializer_range"] for part, shape in shapes.items()
    }
    block |= {part: torch.ones(hidden) for part in ("enorm.weight", "hnorm.weight", "shared_head.norm.weight")}
    # A norm scales: its weights sit around one, not around zero.
    block |= {part: torch.ones(shape) for part, shape in shapes.items() if part.endswith("norm.weight")}
    return {f"model.layers.{number}.{part}": tensor for part, tensor in block.items()}
