"""Dimensions of the tiny model, in the form of GLM-5's own HF `config.json`.

Head geometry (kv_lora 512, rope 64, nope 192, v 256, indexer 32 x 128) is GLM-5's, because kernels want exactly that;
the rest is as small as K-quants at TP=2 allow: expert width 512 leaves 256 columns, one super-block, on each rank.
"""

from __future__ import annotations

from typing import Any, Final

from glm5check.tiny.tokenizer import END_OF_TEXT, OBSERVATION, USER, VOCAB_SIZE, special_id

MODEL_NAME: Final = "glm5-tiny"
LAYERS: Final = 3
INITIALIZER_RANGE: Final = 0.05
"""Wider than GLM-5's 0.02: at this width 0.02 learns about three times slower."""


def hf_config() -> dict[str, Any]:
    """The content of `config.json`, every key of GLM-5's own present; token ids are those of the tiny tokenizer."""
    return {
        "architectures": ["GlmMoeDsaForCausalLM"],
        "model_type": "glm_moe_dsa",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "dtype": "float32",
        "eos_token_id": [special_id(token) for token in (END_OF_TEXT, USER, OBSERVATION)],
        "pad_token_id": special_id(END_OF_TEXT),
        "ep_size": 1,
        "first_k_dense_replace": 1,
        "hidden_act": "silu",
        "head_dim": 64,
        "hidden_size": 256,
        "index_head_dim": 128,
        "index_n_heads": 32,
        "index_topk": 512,
        "indexer_rope_interleave": True,
        "initializer_range": INITIALIZER_RANGE,
        "intermediate_size": 512,
        "kv_lora_rank": 512,
        "max_position_embeddings": 4096,
        "moe_intermediate_size": 512,
        "moe_layer_freq": 1,
        "n_group": 1,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": 4,
        "num_nextn_predict_layers": 0,
        "pretraining_tp": 1,
        "q_lora_rank": 128,
        "qk_head_dim": 256,
        "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64,
        "rms_norm_eps": 1e-5,
        "rope_interleave": True,
        "rope_parameters": {"rope_theta": 1_000_000, "rope_type": "default"},
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "tie_word_embeddings": False,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "use_cache": True,
        "v_head_dim": 256,
        "vocab_size": VOCAB_SIZE,
    }


def generation_config() -> dict[str, Any]:
    """The content of `generation_config.json`: greedy by default, three tokens that end a turn."""
    return {
        "do_sample": False,
        "eos_token_id": [special_id(token) for token in (END_OF_TEXT, USER, OBSERVATION)],
        "pad_token_id": special_id(END_OF_TEXT),
    }
