"""A `GlmMoeDsaForCausalLM` state dict as a split GGUF of architecture `glm-dsa`, as llama.cpp's converter lays it out.

MLA's up-projection is stored in two parts: `attn_k_b` is the nope rows of kv_b, transposed per head (numpy
[heads, kv_lora, nope]), `attn_v_b` the value rows (numpy [heads, v, kv_lora]). Nothing is permuted for rope: GLM-5
rotates interleaved pairs. An attention head is [nope | rope], an indexer head [rope | nope].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from glm5check.tiny.kquants import quantize
from glm5check.tiny.metadata import write_metadata
from glm5check.tiny.nextn import nextn_block

QuantMix: TypeAlias = Sequence[tuple[str, GGMLQuantizationType]]
"""(glob over GGUF tensor names, type) pairs; the first glob that matches decides."""
StateDict: TypeAlias = Mapping[str, torch.Tensor]

_T: Final = GGMLQuantizationType
UNQUANTISED: Final[QuantMix] = tuple(
    (glob, _T.F32) for glob in ("*norm*", "*.ffn_gate_inp.weight", "*.exp_probs_b.bias", "*.indexer.proj.weight")
)
"""What the published sets keep in F32, whatever the mix."""
UD_Q4_K_XL: Final[QuantMix] = (
    *UNQUANTISED,
    ("blk.2.ffn_gate_exps.weight", _T.Q5_K),
    ("blk.2.ffn_up_exps.weight", _T.Q5_K),
    ("blk.2.ffn_down_exps.weight", _T.Q6_K),
    ("*.ffn_gate_exps.weight", _T.Q4_K),
    ("*.ffn_up_exps.weight", _T.Q4_K),
    ("*.ffn_down_exps.weight", _T.Q5_K),
    ("*", _T.Q8_0),
)
"""The published UD-Q4_K_XL mix; block 2 plays the few blocks that are one step wider there."""
F32: Final[QuantMix] = (("*", _T.F32),)

# HF name after "model.layers.N." -> GGUF name after "blk.N."; experts and kv_b_proj are not renamed but rearranged.
# Written out rather than taken from `glm5.tensors`: a mistake in that table must not cancel itself out here.
_BLOCK_NAMES: Final[dict[str, str]] = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_a_proj.weight": "attn_q_a.weight",
    "self_attn.q_a_layernorm.weight": "attn_q_a_norm.weight",
    "self_attn.q_b_proj.weight": "attn_q_b.weight",
    "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.indexer.k_norm.weight": "indexer.k_norm.weight",
    "self_attn.indexer.k_norm.bias": "indexer.k_norm.bias",
    "self_attn.indexer.weights_proj.weight": "indexer.proj.weight",
    "self_attn.indexer.wk.weight": "indexer.attn_k.weight",
    "self_attn.indexer.wq_b.weight": "indexer.attn_q_b.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.shared_experts.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_experts.down_proj.weight": "ffn_down_shexp.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "eh_proj.weight": "nextn.eh_proj.weight",
    "enorm.weight": "nextn.enorm.weight",
    "hnorm.weight": "nextn.hnorm.weight",
    "shared_head.norm.weight": "nextn.shared_head_norm.weight",
}
_GLOBAL_NAMES: Final[dict[str, str]] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def export_gguf(
    state_dict: StateDict,
    config: Mapping[str, Any],
    tokenizer_dir: Path,
    out_dir: Path,
    *,
    mix: QuantMix,
    files: int = 3,
    nextn: bool = False,
    name: str = "glm5-tiny-UD-Q4_K_XL",
) -> list[Path]:
    """Write `files` GGUF files into `out_dir` and return their paths, in order.

    `state_dict` is that of a `GlmMoeDsaForCausalLM` in memory (experts fused: `gate_up_proj`, `down_proj`), `config`
    the content of its `config.json`. With more than one file the first has metadata only, as published sets do.
    `nextn` adds a next-token-prediction block with random weights behind the last one. Raises ValueError for a name
    that has no place in a GGUF, for a mix that does not fit the shapes, or for more files than tensors.
    """
    state = dict(state_dict) | (nextn_block(state_dict, config) if nextn else {})
    tensors = dict(gguf_tensors(state, config))
    per_file = -(-len(tensors) // max(files - 1, 1))
    if files > 1 and -(-len(tensors) // per_file) != files - 1:
        raise ValueError(f"{len(tensors)} tensors cannot be split into {files - 1} files of equal length")
    split = {"split_max_tensors": per_file, "small_first_shard": True} if files > 1 else {}
    writer = GGUFWriter(out_dir / f"{name}.gguf", "glm-dsa", **split)
    write_metadata(writer, config, tokenizer_dir, nextn_layers=int(nextn))
    for tensor_name, values in tensors.items():
        kind = quant_type(tensor_name, mix)
        writer.add_tensor(tensor_name, quantize(values, kind), raw_dtype=kind)
    paths = writer.format_shard_names(out_dir / f"{name}.gguf")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return [Path(path) for path in paths]


def quant_type(tensor_name: str, mix: QuantMix) -> GGMLQuantizationType:
    """The type that `mix` gives to a tensor; raises ValueError if no glob matches."""
    for glob, kind in mix:
        if fnmatchcase(tensor_name, glob):
            return kind
    raise ValueError(f"the mix says nothing about {tensor_name}")


def gguf_tensors(state_dict: StateDict, config: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """(GGUF name, float32 values in numpy order) of every tensor, globals first, then block by block."""
    for hf_name in sorted(state_dict, key=_file_order):
        values = state_dict[hf_name].detach().to(torch.float32).cpu().numpy()
        if hf_name in _GLOBAL_NAMES:
            yield _GLOBAL_NAMES[hf_name], values
            continue
        block, _, part = hf_name.removeprefix("model.layers.").partition(".")
        prefix = f"blk.{block}."
        if part == "self_attn.kv_b_proj.weight":
            yield from _split_kv_b(prefix, values, config)
        elif part == "mlp.experts.gate_up_proj":
            gate, up = np.split(values, 2, axis=1)
            yield f"{prefix}ffn_gate_exps.weight", np.ascontiguousarray(gate)
            yield f"{prefix}ffn_up_exps.weight", np.ascontiguousarray(up)
        elif part in _BLOCK_NAMES:
            yield prefix + _BLOCK_NAMES[part], values
        else:
            raise ValueError(f"{hf_name} has no place in a glm-dsa GGUF")


def _file_order(hf_name: str) -> tuple[int, str]:
    block = hf_name.removeprefix("model.layers.").partition(".")[0]
    return (int(block) if block.isdecimal() else -1), hf_name


def _split_kv_b(
    prefix: str, values: NDArray[np.float32], config: Mapping[str, Any]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """kv_b_proj [heads * (nope + v), kv_lora] as attn_k_b [heads, kv_lora, nope] and attn_v_b [heads, v, kv_lora]."""
    nope = config["qk_nope_head_dim"]
    heads = values.reshape(config["num_attention_heads"], nope + config["v_head_dim"], config["kv_lora_rank"])
    yield f"{prefix}attn_k_b.weight", np.ascontiguousarray(heads[:, :nope].transpose(0, 2, 1))
    yield f"{prefix}attn_v_b.weight", np.ascontiguousarray(heads[:, nope:])
