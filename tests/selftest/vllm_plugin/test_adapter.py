"""What the adapter hands to vLLM's loaders, for a set of random weights."""

from dataclasses import replace
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize

from fixtures.gguf_files import DIMENSIONS, write_set
from glm5check.checkpoint.index import GgufSet
from glm5check.errors import CheckpointError
from glm5check.vllm_plugin import adapter
from glm5check.vllm_plugin.adapter import GlmDsaAdapter, drafter_tensors, join_kv_b

CONFIG = SimpleNamespace(gguf_architecture="glm-dsa", model_type="deepseek_v3", num_hidden_layers=2, n_routed_experts=4)
MODEL = SimpleNamespace(hf_config=CONFIG, dtype=torch.bfloat16)


@pytest.fixture
def ranks(monkeypatch):
    """Sets how many ranks the adapter believes in: two, unless a test says otherwise."""

    def believe(number):
        monkeypatch.setattr(adapter, "get_tensor_model_parallel_world_size", lambda: number)

    believe(2)
    return believe


@pytest.fixture
def load(tmp_path, ranks):
    """Writes a set as `write_set` does, and returns the adapter and what it yields by name."""

    def written(**choices):
        path = write_set(tmp_path, **choices)
        made = GlmDsaAdapter(CONFIG)
        made.prepare_loading(str(path), MODEL)
        return made, GgufSet.open(path), dict(made.prepare_weights(MODEL))

    return written


def test_it_takes_configs_with_the_marker_only():
    assert GlmDsaAdapter.matches(CONFIG)
    assert not GlmDsaAdapter.matches(SimpleNamespace(model_type="deepseek_v3"))


def test_a_quantised_layer_gets_its_bytes_and_their_type(load):
    _, files, weights = load()
    assert torch.equal(weights["lm_head.qweight"], torch.tensor(files.raw("output.weight")))
    assert weights["lm_head.qweight_type"] == gguf.GGMLQuantizationType.Q8_0


def test_experts_come_one_by_one(load):
    _, files, weights = load()
    for expert in range(DIMENSIONS.experts):
        name = f"model.layers.1.mlp.experts.{expert}.down_proj"
        assert torch.equal(weights[f"{name}.qweight"], torch.tensor(files.raw("blk.1.ffn_down_exps.weight")[expert]))
        assert weights[f"{name}.qweight_type"] == gguf.GGMLQuantizationType.Q5_K


@pytest.mark.parametrize("qtype", [gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.BF16])
def test_unquantised_experts_come_in_the_activations_type(load, qtype):
    """The plugin has no unquantised kind of expert layer; it multiplies these as they are."""
    names = [f"blk.1.ffn_{part}_exps.weight" for part in ("gate", "up")]
    made, files, weights = load(types=dict.fromkeys(names, qtype))
    expected = torch.tensor(files.dequantise(names[0])[2]).to(torch.bfloat16)
    assert torch.equal(weights["model.layers.1.mlp.experts.2.gate_proj.qweight"], expected)
    assert not any("experts." in name for name in made.load_spec.unquantized_modules)


def test_an_unquantised_layer_is_named_as_such(load):
    made, files, weights = load(types={"blk.0.attn_output.weight": gguf.GGMLQuantizationType.F32})
    name = "model.layers.0.self_attn.o_proj"
    assert name in made.load_spec.unquantized_modules
    assert "model.layers.1.self_attn.o_proj" not in made.load_spec.unquantized_modules
    assert torch.equal(weights[f"{name}.weight"], torch.tensor(files.dequantise("blk.0.attn_output.weight")))


def test_the_router_bias_keeps_every_distinct_value(load):
    _, files, weights = load()
    bias = weights["model.layers.1.mlp.gate.e_score_correction_bias"]
    assert bias.dtype is torch.float32
    assert torch.equal(bias, torch.tensor(files.dequantise("blk.1.exp_probs_b.bias")))


def test_a_bias_under_its_other_name_is_found(load):
    _, _, weights = load(rename={"blk.1.exp_probs_b.bias": "blk.1.exp_probs_b"})
    assert "model.layers.1.mlp.gate.e_score_correction_bias" in weights


def test_the_indexer_is_dequantised_under_its_own_names(load):
    """`weights_proj` has `weight` in its name: renaming every occurrence would lose it."""
    made, _, weights = load(types={"blk.0.indexer.proj.weight": gguf.GGMLQuantizationType.Q8_0})
    part = "model.layers.0.self_attn.indexer"
    assert weights[f"{part}.weights_proj.weight"].shape == (DIMENSIONS.index_heads, DIMENSIONS.hidden)
    assert weights[f"{part}.wq_b.weight"].dtype is torch.float32
    assert f"{part}.wq_b" in made.load_spec.unquantized_modules


def test_kv_b_has_the_rows_of_each_head_together(load):
    _, files, weights = load()
    dims = DIMENSIONS
    joined = weights["model.layers.0.self_attn.kv_b_proj.weight"].reshape(dims.heads, -1, dims.kv_lora)
    keys = dequantize(np.array(files.raw("blk.0.attn_k_b.weight")), gguf.GGMLQuantizationType.Q8_0)
    values = dequantize(np.array(files.raw("blk.0.attn_v_b.weight")), gguf.GGMLQuantizationType.Q8_0)
    assert np.array_equal(joined[:, : dims.nope], keys.transpose(0, 2, 1))
    assert np.array_equal(joined[:, dims.nope :], values)


def test_joining_reverses_the_converters_split():
    kv_b = torch.arange(3 * (4 + 5) * 6.0).reshape(3, 9, 6)
    assert torch.equal(join_kv_b(kv_b[:, :4].transpose(1, 2), kv_b[:, 4:]), kv_b.reshape(27, 6))


def test_a_split_set_yields_what_the_whole_one_does(load):
    _, _, whole = load()
    _, _, split = load(parts=3)
    assert whole.keys() == split.keys()
    assert all(torch.equal(whole[name], split[name]) for name in whole)


def test_a_missing_file_is_named(tmp_path, ranks):
    path = write_set(tmp_path, parts=3)
    (tmp_path / "micro-00002-of-00003.gguf").unlink()
    with pytest.raises(CheckpointError, match=r"micro-00002-of-00003\.gguf does not exist"):
        GlmDsaAdapter(CONFIG).prepare_loading(str(path), MODEL)


def test_a_truncated_file_is_named(tmp_path, ranks):
    path = write_set(tmp_path)
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(CheckpointError, match=r"micro\.gguf"):
        GlmDsaAdapter(CONFIG).prepare_loading(str(path), MODEL)


def test_missing_tensors_are_named(load):
    with pytest.raises(
        CheckpointError, match=r"lacks 2 tensors of GLM-5: blk.0.attn_k_b.weight, blk.1.attn_k_b.weight"
    ):
        load(drop=["attn_k_b.weight"])


def test_a_set_without_indexer_can_be_served_densely(load):
    _, _, weights = load(drop=["indexer.attn_k.weight"])
    assert "model.layers.0.self_attn.indexer.wk.weight" not in weights


def test_ranks_that_would_cut_a_block_are_refused(load, ranks):
    """512 columns of Q5_K are two blocks: fit for two ranks, not for four."""
    ranks(4)
    with pytest.raises(
        CheckpointError, match=r"4 ranks cannot share whole .* blk.1.ffn_down_exps.weight \(512 columns"
    ):
        load()


def test_gate_and_up_experts_of_different_types_are_refused(load):
    """Q4_K and Q4_0 have equally long rows: the plugin would decode the one as the other, silently."""
    with pytest.raises(CheckpointError, match=r"different quant types: blk.1 \(Q4_0 and Q4_K\)"):
        load(types={"blk.1.ffn_up_exps.weight": gguf.GGMLQuantizationType.Q4_0})


@pytest.mark.parametrize("changes", [{"num_hidden_layers": 3}, {"n_routed_experts": 8}])
def test_a_config_of_another_model_is_refused(tmp_path, ranks, changes):
    other = SimpleNamespace(**{**vars(CONFIG), **changes})
    with pytest.raises(CheckpointError, match="the GGUF set 2 of 4"):
        GlmDsaAdapter(other).prepare_loading(str(write_set(tmp_path)), SimpleNamespace(hf_config=other))


def test_a_drafter_gets_its_block_and_an_embedding_and_output_of_its_own():
    specs = {spec.hf: spec.gguf for spec in drafter_tensors(replace(DIMENSIONS, nextn_layers=1))}
    assert specs["model.embed_tokens.weight"] == "token_embd.weight"
    assert specs["model.layers.2.shared_head.head.weight"] == "output.weight"
    assert specs["model.layers.2.eh_proj.weight"] == "blk.2.nextn.eh_proj.weight"
    assert "model.layers.2.mlp.experts.{expert}.down_proj.weight" in specs
    assert not any(".layers.0." in name or ".layers.1." in name for name in specs)


def test_a_model_without_the_block_cannot_draft(tmp_path, ranks):
    drafter = SimpleNamespace(**{**vars(CONFIG), "model_type": "deepseek_mtp"})
    with pytest.raises(CheckpointError, match="no multi-token-prediction block"):
        GlmDsaAdapter(drafter).prepare_loading(str(write_set(tmp_path)), SimpleNamespace(hf_config=drafter))
