"""The dimensions of a GLM-5 model, read from GGUF keys or from the HF config; none is a constant of this program.

Dimensions.from_gguf(metadata)   keys `glm-dsa.*` as llama.cpp's converter writes them
Dimensions.from_hf(config)       `config.json` of class GlmMoeDsaForCausalLM
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from glm5check.errors import CheckpointError

ARCHITECTURE: Final = "glm-dsa"
HF_CLASS: Final = "GlmMoeDsaForCausalLM"
GATING: Final = {1: "softmax", 2: "sigmoid"}
"""llama.cpp's `expert_gating_func` codes."""
_REQUIRED: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """Sizes in elements, counts in units, `layers` without the multi-token-prediction block."""

    layers: int
    nextn_layers: int
    dense_layers: int
    hidden: int
    vocab: int
    heads: int
    q_lora: int
    kv_lora: int
    nope: int
    rope: int
    value: int
    dense_ffn: int
    expert_ffn: int
    experts: int
    experts_used: int
    shared_experts: int
    groups: int
    groups_used: int
    gating: str
    routed_scale: float
    norm_topk: bool
    rms_eps: float
    rope_theta: float
    context: int
    index_heads: int
    index_head: int
    index_topk: int

    @property
    def query_rows(self) -> int:
        """Rows of q_b: heads x (nope + rope)."""
        return self.heads * (self.nope + self.rope)

    @property
    def kv_latent(self) -> int:
        """Rows of kv_a: the cached latent and the shared rope key, kv_lora + rope."""
        return self.kv_lora + self.rope

    @property
    def output_columns(self) -> int:
        """Columns of the attention output projection: heads x value."""
        return self.heads * self.value

    @property
    def index_rows(self) -> int:
        """Rows of the indexer's query projection: index_heads x index_head."""
        return self.index_heads * self.index_head

    @property
    def shared_ffn(self) -> int:
        """Hidden units of the shared expert(s): shared_experts x expert_ffn."""
        return self.shared_experts * self.expert_ffn

    @property
    def twice_hidden(self) -> int:
        """Columns of the multi-token-prediction input projection: embedding beside hidden state."""
        return 2 * self.hidden

    @property
    def all_reduces(self) -> int:
        """All-reduces of one decode step under tensor parallelism.

        One after the vocabulary-parallel embedding, one after each attention output, one after each MLP: 2 x layers
        + 1, which is 157 for GLM-5's 78 layers.
        """
        return 2 * self.layers + 1

    def shape_differences(self, other: Dimensions) -> list[str]:
        """Sizes that decide tensor shapes and differ, as `hidden: 256 here, 6144 there`."""
        return [
            f"{name}: {getattr(self, name)} in the GGUF, {getattr(other, name)} in the config"
            for name in _SHAPE_FIELDS
            if getattr(self, name) != getattr(other, name)
        ]

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Dimensions:
        """Read the `glm-dsa.*` keys. Raises CheckpointError naming a key that is missing or of another type."""
        architecture = metadata.get("general.architecture")
        if architecture != ARCHITECTURE:
            raise CheckpointError(
                f"the file's architecture is {architecture!r}, not {ARCHITECTURE!r}",
                where="key general.architecture",
                do="give the GGUF of a GLM-5 model (converted as GlmMoeDsaForCausalLM)",
            )

        def get(key: str, default: Any = _REQUIRED) -> Any:
            return _value(metadata, f"{ARCHITECTURE}.{key}", default, "GGUF")

        rope = int(get("rope.dimension_count"))
        nextn = int(get("nextn_predict_layers", 0))
        gating = int(get("expert_gating_func", 0))
        return cls(
            layers=int(get("block_count")) - nextn,
            nextn_layers=nextn,
            dense_layers=int(get("leading_dense_block_count")),
            hidden=int(get("embedding_length")),
            vocab=int(get("vocab_size")),
            heads=int(get("attention.head_count")),
            q_lora=int(get("attention.q_lora_rank")),
            kv_lora=int(get("attention.kv_lora_rank")),
            nope=int(get("attention.key_length_mla")) - rope,
            rope=rope,
            value=int(get("attention.value_length_mla")),
            dense_ffn=int(get("feed_forward_length")),
            expert_ffn=int(get("expert_feed_forward_length")),
            experts=int(get("expert_count")),
            experts_used=int(get("expert_used_count")),
            shared_experts=int(get("expert_shared_count")),
            groups=int(get("expert_group_count", 1)),
            groups_used=int(get("expert_group_used_count", 1)),
            gating=GATING.get(gating, f"unknown code {gating}"),
            routed_scale=float(get("expert_weights_scale")),
            norm_topk=bool(get("expert_weights_norm")),
            rms_eps=float(get("attention.layer_norm_rms_epsilon")),
            rope_theta=float(get("rope.freq_base")),
            context=int(get("context_length")),
            index_heads=int(get("attention.indexer.head_count")),
            index_head=int(get("attention.indexer.key_length")),
            index_topk=int(get("attention.indexer.top_k")),
        )

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> Dimensions:
        """Read a parsed `config.json`. Raises CheckpointError naming a key that is missing."""
        classes = config.get("architectures") or []
        if HF_CLASS not in classes:
            raise CheckpointError(
                f"the HF config is for {classes or 'no class'}, not {HF_CLASS}",
                where="key architectures of config.json",
                do="give --glm5-config the directory of GLM-5's own config.json",
            )

        def get(key: str, default: Any = _REQUIRED) -> Any:
            return _value(config, key, default, "HF config")

        rope_parameters = get("rope_parameters", None) or {}
        theta = rope_parameters.get("rope_theta", config.get("rope_theta"))
        if theta is None:
            raise CheckpointError("the HF config gives no rope_theta", where="key rope_parameters", do=_CONFIG_ADVICE)
        return cls(
            layers=int(get("num_hidden_layers")),
            nextn_layers=int(get("num_nextn_predict_layers", 0)),
            dense_layers=int(get("first_k_dense_replace")),
            hidden=int(get("hidden_size")),
            vocab=int(get("vocab_size")),
            heads=int(get("num_attention_heads")),
            q_lora=int(get("q_lora_rank")),
            kv_lora=int(get("kv_lora_rank")),
            nope=int(get("qk_nope_head_dim")),
            rope=int(get("qk_rope_head_dim")),
            value=int(get("v_head_dim")),
            dense_ffn=int(get("intermediate_size")),
            expert_ffn=int(get("moe_intermediate_size")),
            experts=int(get("n_routed_experts")),
            experts_used=int(get("num_experts_per_tok")),
            shared_experts=int(get("n_shared_experts")),
            groups=int(get("n_group", 1)),
            groups_used=int(get("topk_group", 1)),
            gating=str(get("scoring_func", "softmax")),  # vLLM's default when the key is missing
            routed_scale=float(get("routed_scaling_factor", 1.0)),
            norm_topk=bool(get("norm_topk_prob")),
            rms_eps=float(get("rms_norm_eps")),
            rope_theta=float(theta),
            context=int(get("max_position_embeddings")),
            index_heads=int(get("index_n_heads")),
            index_head=int(get("index_head_dim")),
            index_topk=int(get("index_topk")),
        )


_SHAPE_FIELDS: Final = (
    *("layers", "dense_layers", "hidden", "vocab", "heads", "q_lora", "kv_lora", "nope", "rope", "value", "dense_ffn"),
    *("expert_ffn", "experts", "shared_experts", "index_heads", "index_head"),
)
_CONFIG_ADVICE: Final = "take config.json from the model's own repository"


def read_hf_config(directory: Path) -> dict[str, Any]:
    """Parse `directory/config.json`. Raises CheckpointError if it is missing or no JSON object."""
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read the HF config: {error}", where=str(path), do=_CONFIG_ADVICE) from None
    if not isinstance(config, dict):
        raise CheckpointError("the HF config is no JSON object", where=str(path), do=_CONFIG_ADVICE)
    return config


def _value(source: Mapping[str, Any], key: str, default: Any, kind: str) -> Any:
    value = source.get(key, default)
    if value is _REQUIRED:
        advice = _CONFIG_ADVICE if kind == "HF config" else "convert the model again with a current llama.cpp"
        raise CheckpointError(f"the {kind} lacks a key that GLM-5 needs", where=f"key {key}", do=advice)
    return value
