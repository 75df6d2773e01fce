"""The key-value part of a `glm-dsa` GGUF, key for key what llama.cpp's converter writes for GLM-5."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gguf import GGML_QUANT_VERSION, ExpertGatingFuncType, GGUFWriter, LlamaFileType, TokenType

from glm5check.tiny.geometry import MODEL_NAME
from glm5check.tiny.tokenizer import BEGIN, END_OF_TEXT, OBSERVATION, USER, vocabulary

EXPERTS_GATED_BY: Final = {"sigmoid": ExpertGatingFuncType.SIGMOID, "softmax": ExpertGatingFuncType.SOFTMAX}


def write_metadata(
    writer: GGUFWriter, config: Mapping[str, Any], tokenizer_dir: Path, *, nextn_layers: int, name: str = MODEL_NAME
) -> None:
    """Add every key to `writer`; `config` is the content of `config.json`, `tokenizer_dir` has the HF tokenizer."""
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_quantization_version(GGML_QUANT_VERSION)
    _write_dimensions(writer, config, nextn_layers)
    _write_experts(writer, config)
    _write_tokenizer(writer, tokenizer_dir, config["vocab_size"])


def _write_dimensions(writer: GGUFWriter, config: Mapping[str, Any], nextn_layers: int) -> None:
    """Attention is described twice: as the compressed cache sees it (one head), and (`_mla`) as the model does."""
    rope, kv_lora = config["qk_rope_head_dim"], config["kv_lora_rank"]
    # The count includes the next-token-prediction layer.
    writer.add_block_count(config["num_hidden_layers"] + nextn_layers)
    writer.add_nextn_predict_layers(nextn_layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(1)
    writer.add_key_length(kv_lora + rope)
    writer.add_value_length(kv_lora)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rope)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(kv_lora)
    writer.add_rope_dimension_count(rope)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_indexer_head_count(config["index_n_heads"])
    writer.add_indexer_key_length(config["index_head_dim"])
    writer.add_indexer_top_k(config["index_topk"])


def _write_experts(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_gating_func(EXPERTS_GATED_BY[config["scoring_func"]])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])


def _write_tokenizer(writer: GGUFWriter, tokenizer_dir: Path, vocab_size: int) -> None:
    """Tokens, merges and kinds; rows of the embedding without a token become `[PADn]` of type UNUSED."""
    tokens, merges, control = vocabulary(tokenizer_dir)
    kinds = {None: TokenType.NORMAL, True: TokenType.CONTROL, False: TokenType.USER_DEFINED}
    padding = range(len(tokens), vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("glm4")
    writer.add_token_list([*tokens, *(f"[PAD{index}]" for index in padding)])
    writer.add_token_types([*(kinds[flag] for flag in control), *(TokenType.UNUSED for _ in padding)])
    writer.add_token_merges(merges)
    end = tokens.index(END_OF_TEXT)
    writer.add_bos_token_id(tokens.index(BEGIN))
    writer.add_eos_token_id(end)
    writer.add_eot_token_id(tokens.index(USER))
    writer.add_eom_token_id(tokens.index(OBSERVATION))
    writer.add_unk_token_id(end)
    writer.add_pad_token_id(end)
    writer.add_chat_template((tokenizer_dir / "chat_template.jinja").read_text(encoding="utf-8"))
