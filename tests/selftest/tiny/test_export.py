"""The exporter writes every tensor under its GGUF name, in its shape and type, and refuses what it cannot write."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as T
from gguf import GGUFReader
from transformers import GlmMoeDsaConfig, GlmMoeDsaForCausalLM

from fixtures.options import EMBEDDED
from glm5check.checkpoint.index import GgufSet
from glm5check.glm5.dimensions import Dimensions
from glm5check.glm5.tensors import expected_tensors
from glm5check.oracles.hf import load_model
from glm5check.tiny.export import F32, UD_Q4_K_XL, export_gguf
from glm5check.tiny.geometry import hf_config
from glm5check.tiny.model import write_configs


@pytest.fixture(scope="module")
def random_model():
    torch.manual_seed(1)
    return GlmMoeDsaForCausalLM(GlmMoeDsaConfig(**hf_config()))


@pytest.fixture(scope="module")
def quantised(random_model, tmp_path_factory):
    return export(random_model, tmp_path_factory.mktemp("xl"), mix=UD_Q4_K_XL)


def export(model, folder, **options):
    return export_gguf(model.state_dict(), hf_config(), EMBEDDED, folder, **options)


def table(paths):
    """(name -> shape in numpy order, name -> type) of all files."""
    tensors = [tensor for path in paths for tensor in GGUFReader(path).tensors]
    shapes = {tensor.name: tuple(int(n) for n in reversed(tensor.shape)) for tensor in tensors}
    return shapes, {tensor.name: tensor.tensor_type for tensor in tensors}


@pytest.mark.parametrize("nextn", [False, True])
def test_names_and_shapes_are_those_of_the_architecture(random_model, tmp_path, nextn):
    """Two tables written apart agree: the exporter's and the one that the audit uses."""
    shapes, _ = table(export(random_model, tmp_path, mix=F32, nextn=nextn))
    expected = expected_tensors(Dimensions.from_hf(hf_config() | {"num_nextn_predict_layers": int(nextn)}), nextn=nextn)
    assert shapes == {spec.gguf: spec.shape for spec in expected}


def test_types_are_those_of_the_mix(quantised):
    _, types = table(quantised)
    wanted = {
        "blk.1.ffn_gate_exps.weight": T.Q4_K, "blk.1.ffn_up_exps.weight": T.Q4_K, "blk.1.ffn_down_exps.weight": T.Q5_K,
        "blk.2.ffn_gate_exps.weight": T.Q5_K, "blk.2.ffn_up_exps.weight": T.Q5_K, "blk.2.ffn_down_exps.weight": T.Q6_K,
        "blk.1.ffn_gate_inp.weight": T.F32, "blk.1.exp_probs_b.bias": T.F32, "blk.0.indexer.proj.weight": T.F32,
        "blk.0.attn_kv_a_norm.weight": T.F32, "blk.0.indexer.k_norm.bias": T.F32, "output_norm.weight": T.F32,
        "blk.0.attn_k_b.weight": T.Q8_0, "blk.0.attn_v_b.weight": T.Q8_0, "blk.0.indexer.attn_q_b.weight": T.Q8_0,
        "blk.1.ffn_down_shexp.weight": T.Q8_0, "token_embd.weight": T.Q8_0, "output.weight": T.Q8_0,
    }  # fmt: skip
    assert {name: types[name] for name in wanted} == wanted
    assert set(types.values()) == {T.F32, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K}


def test_unquantised_export_comes_back_bit_for_bit(random_model, tmp_path):
    write_configs(tmp_path, hf_config(), {})
    (file,) = export(random_model, tmp_path, mix=F32, files=1)
    loaded = load_model(file, tmp_path).state_dict()
    state = random_model.state_dict()
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], state[name]) for name in state)


@pytest.mark.parametrize(("files", "lengths"), [(1, [67]), (2, [0, 67]), (3, [0, 34, 33]), (5, [0, 17, 17, 17, 16])])
def test_set_is_split_as_asked_with_metadata_first(random_model, tmp_path, files, lengths):
    paths = export(random_model, tmp_path, mix=F32, files=files)
    opened = GgufSet.open(paths[0])
    assert opened.defects == ()
    assert [len(header.tensors) for header in opened.headers] == lengths


def test_metadata_gives_the_dimensions_of_the_config(quantised):
    metadata = GgufSet.open(quantised[0]).metadata
    assert Dimensions.from_gguf(metadata).shape_differences(Dimensions.from_hf(hf_config())) == []
    wanted = {
        "general.architecture": "glm-dsa", "glm-dsa.block_count": 3, "glm-dsa.nextn_predict_layers": 0,
        "glm-dsa.attention.key_length": 576, "glm-dsa.attention.value_length": 512,
        "glm-dsa.attention.key_length_mla": 256, "glm-dsa.attention.value_length_mla": 256,
        "glm-dsa.attention.head_count_kv": 1, "glm-dsa.attention.indexer.top_k": 512,
        "glm-dsa.expert_gating_func": 2, "glm-dsa.expert_weights_norm": True,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "glm4",
    }  # fmt: skip
    assert {key: metadata[key] for key in wanted} == wanted
    tokens = metadata["tokenizer.ggml.tokens"]
    roles = {"bos": "[gMASK]", "eos": "<|endoftext|>", "eot": "<|user|>", "eom": "<|observation|>"}
    assert {role: tokens[metadata[f"tokenizer.ggml.{role}_token_id"]] for role in roles} == roles
    assert len(tokens) == len(metadata["tokenizer.ggml.token_type"]) == 1024


def test_next_token_block_counts_as_a_block(random_model, tmp_path):
    metadata = GgufSet.open(export(random_model, tmp_path, mix=F32, nextn=True)[0]).metadata
    assert (metadata["glm-dsa.block_count"], metadata["glm-dsa.nextn_predict_layers"]) == (4, 1)


def test_k_b_is_transposed_per_head(random_model, tmp_path):
    (file,) = export(random_model, tmp_path, mix=F32, files=1)
    tensors = {tensor.name: tensor.data for tensor in GGUFReader(file).tensors}
    kv_b = random_model.state_dict()["model.layers.0.self_attn.kv_b_proj.weight"].numpy()
    head = kv_b[448:896]
    np.testing.assert_array_equal(tensors["blk.0.attn_k_b.weight"][1], head[:192].T)
    np.testing.assert_array_equal(tensors["blk.0.attn_v_b.weight"][1], head[192:])


def test_a_tensor_without_a_place_is_refused(random_model, tmp_path):
    state = random_model.state_dict() | {"model.layers.0.self_attn.q_norm.weight": torch.ones(4)}
    with pytest.raises(ValueError, match="q_norm"):
        export_gguf(state, hf_config(), EMBEDDED, tmp_path, mix=F32)


def test_a_mix_that_says_nothing_about_a_tensor_is_refused(random_model, tmp_path):
    with pytest.raises(ValueError, match="says nothing about"):
        export(random_model, tmp_path, mix=[("blk.*", T.F32)])


def test_a_mix_that_does_not_fit_the_shapes_is_refused(random_model, tmp_path):
    """`attn_k_b` has rows of 192 weights: no whole super-block."""
    with pytest.raises(ValueError, match="192 columns"):
        export(random_model, tmp_path, mix=[("*norm*", T.F32), ("*.attn_k_b.weight", T.Q4_K), ("*", T.F32)])


def test_a_split_into_more_files_than_tensors_is_refused(random_model, tmp_path):
    with pytest.raises(ValueError, match="cannot be split"):
        export(random_model, tmp_path, mix=F32, files=200)
