"""Each fix is needed by the locked versions, mends what it says, and can be left out by name."""

import inspect

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding
from vllm_gguf_plugin.quantization import params
from vllm_gguf_plugin.quantization.fused_moe import GGUFMoEMethod

from glm5check.errors import OptionError
from glm5check.vllm_plugin import fixes
from glm5check.vllm_plugin.fixes import cpu_rotary, cuda_kernels, merged_rank, moe_types

MIXIN = params._GGUFParamLoadMixin


HERE = tuple(fix for fix in fixes.ALL if fix is not cuda_kernels.FIX)
"""Those that the locked versions, which have no GPU, need."""


@pytest.mark.parametrize("fix", HERE, ids=lambda fix: fix.name)
def test_upstream_still_has_the_fault(fix):
    """If this fails, upstream has mended it: remove the fix, and what the documentation says about it."""
    assert fix.is_needed()


def test_names_are_the_modules_names():
    modules = (merged_rank, cpu_rotary, moe_types, cuda_kernels)
    assert {module.__name__.rpartition(".")[2]: module.FIX for module in modules} == {
        fix.name: fix for fix in fixes.ALL
    }


def test_all_none_and_a_list_are_understood():
    assert fixes.chosen("all") == fixes.ALL
    assert fixes.chosen("none") == ()
    assert fixes.chosen("moe_types, merged_rank") == (merged_rank.FIX, moe_types.FIX)


def test_a_wrong_name_lists_the_right_ones():
    with pytest.raises(
        OptionError, match=r"merged_rnk(.|\n)*all, none, or some of merged_rank, cpu_rotary, moe_types, cuda_kernels"
    ):
        fixes.chosen("merged_rnk,moe_types")


def test_a_fix_left_out_is_named():
    applied = fixes.apply("none")
    assert applied.left_out == tuple(fix.name for fix in HERE)
    assert str(applied).startswith("none; needed but left out: merged_rank, cpu_rotary, moe_types")


def rows_of_rank(monkeypatch, rank):
    """What a merged layer's parameter of `rank` of two holds after both parts of 4 rows were loaded."""
    monkeypatch.setattr("vllm.distributed.get_tensor_model_parallel_rank", lambda: rank)
    merged_rank.apply()
    parameter = params.GGUFUninitializedWeightParameter(requires_grad=False)
    parameter.data_container, parameter.shard_id, parameter.shard_id_map = [], [], {}
    for part in (0, 1):
        parameter.load_merged_column_weight(torch.arange(4) + 10 * part, shard_id=part, shard_size=2)
    return torch.cat(parameter.data_container).tolist()


@pytest.fixture
def restored(monkeypatch):
    """Undoes what the fixes do to the plugin's and vLLM's classes."""
    for name in ("load_merged_column_weight", "load_qkv_weight"):
        monkeypatch.setattr(MIXIN, name, getattr(MIXIN, name))
    monkeypatch.setattr(RotaryEmbedding, "forward_cpu", RotaryEmbedding.forward_cpu)
    return monkeypatch


def test_merged_rank_gives_each_rank_its_own_rows(restored):
    assert rows_of_rank(restored, 0) == [0, 1, 10, 11]
    assert rows_of_rank(restored, 1) == [2, 3, 12, 13]


def test_without_merged_rank_every_rank_has_the_first_rows(monkeypatch):
    monkeypatch.setattr(merged_rank, "apply", lambda: None)
    assert rows_of_rank(monkeypatch, 1) == [0, 1, 10, 11]


@pytest.mark.parametrize(
    ("call", "passes"),
    [
        ("load_merged_column_weight(loaded_weight=w, tp_rank=self.tp_rank)", True),
        ("load_merged_column_weight(w)", False),
    ],
)
def test_a_loader_that_passes_its_rank_is_recognised(call, passes):
    assert merged_rank.passes_rank(f"    def weight_loader_v2(self, param, w):\n        param.{call}\n") is passes


def rotary_error(forward_name):
    """Largest error of rotating queries [tokens, heads, 64] and a key cut out of a wider tensor, as MLA gives them."""
    with set_current_vllm_config(VllmConfig()):
        rotary = RotaryEmbedding(64, 64, 128, 1e6, False, torch.float32)
    generator = torch.Generator().manual_seed(1)
    positions = torch.arange(7)
    query = torch.randn(7, 4, 64, generator=generator)
    key = torch.randn(7, 1, 576, generator=generator)[..., 512:]
    right = rotary.forward_native(positions, query.clone(), key.clone())
    got = getattr(rotary, forward_name)(positions, query.clone(), key)
    return max(float((a - b).abs().max()) for a, b in zip(right, got, strict=True))


def test_cpu_rotary_rotates_what_latent_attention_gives_it(restored):
    assert rotary_error("forward_cpu") > 1
    cpu_rotary.apply()
    assert rotary_error("forward_cpu") == 0


def test_moe_types_materialises_what_the_loader_left(monkeypatch):
    monkeypatch.setattr(GGUFMoEMethod, "process_weights_after_loading", None, raising=False)
    monkeypatch.setattr(GGUFMoEMethod.__mro__[1], "process_weights_after_loading", lambda self, layer: None)
    for name, value in (("rank", 0), ("world_size", 1)):
        monkeypatch.setattr(f"vllm.model_executor.parameter.get_tensor_model_parallel_{name}", lambda v=value: v)
    moe_types.apply()
    layer = torch.nn.Module()
    for name in ("w13_qweight_type", "w2_qweight_type"):
        parameter = params.GGUFUninitializedWeightTypeParameter(requires_grad=False)
        parameter.weight_loader = params._gguf_moe_weight_type_loader
        parameter.shard_weight_type, parameter.weight_type, parameter.num_elements = {"w1": 12}, 12, 1
        layer.register_parameter(name, parameter)
    assert all(torch.nn.parameter.is_lazy(parameter) for parameter in layer.parameters())
    GGUFMoEMethod.process_weights_after_loading(object.__new__(GGUFMoEMethod), layer)
    assert [(p.weight_type, p.tolist()) for p in layer.parameters()] == [(12, [12])] * 2


def test_every_fix_says_what_it_is_for():
    for fix in fixes.ALL:
        assert len(fix.what) > 40
        assert any(character.isdigit() for character in fix.versions)
        assert inspect.getdoc(fix.is_needed)
