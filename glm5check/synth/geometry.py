"""The dimensions of a synthetic model: GLM-5's own `config.json`, with fewer layers, experts and tokens if need be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from glm5check.errors import OptionError
from glm5check.tiny.geometry import hf_config

GLM5: Final[dict[str, Any]] = {
    "dtype": "bfloat16",
    "first_k_dense_replace": 3,
    "hidden_size": 6144,
    "index_topk": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 12288,
    "max_position_embeddings": 202752,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_attention_heads": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 78,
    "num_key_value_heads": 64,
    "num_nextn_predict_layers": 0,
    "q_lora_rank": 2048,
    "vocab_size": 154880,
}
"""What the published `config.json` has otherwise than the tiny model's, which has the rest (head sizes, routing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Sizes that a synthetic model may have otherwise than GLM-5. OptionError for sizes that contradict each other.

    `other` replaces further keys of the HF config: smaller widths, for tests that cannot afford GLM-5's.
    """

    layers: int = GLM5["num_hidden_layers"]
    dense_layers: int = GLM5["first_k_dense_replace"]
    experts: int = GLM5["n_routed_experts"]
    vocab: int = GLM5["vocab_size"]
    nextn_layers: int = 0
    other: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        used = int(self.config["num_experts_per_tok"])
        if self.dense_layers > self.layers:
            raise OptionError(f"{self.dense_layers} of {self.layers} layers cannot be dense", do="lower --dense-layers")
        if self.experts < used:
            raise OptionError(f"{self.experts} experts are fewer than the {used} of a token", do="raise --experts")

    @property
    def config(self) -> dict[str, Any]:
        """The content of `config.json`, but for the ids of special tokens."""
        sizes = {
            "num_hidden_layers": self.layers,
            "first_k_dense_replace": self.dense_layers,
            "n_routed_experts": self.experts,
            "vocab_size": self.vocab,
            "num_nextn_predict_layers": self.nextn_layers,
        }
        return hf_config() | GLM5 | sizes | self.other
