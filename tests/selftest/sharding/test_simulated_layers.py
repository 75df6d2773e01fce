"""Every kind of layer that is built for simulated ranks holds what the partition gives, and leaves nothing behind."""

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Q

from fixtures.loader_cases import EXPERTS, Case, Tensors, judge_experts, judge_linear, judge_vocabulary
from glm5check.checkpoint.dequant import dequantise
from glm5check.records import Outcome
from glm5check.sharding import simulated
from glm5check.sharding.simulated import Part

LINEAR = {
    "merged": Case("merged", 2, 256, (6, 10), (Q.Q8_0, Q.Q4_K), (1, 0)),
    "fused": Case("fused", 2, 256, (3, 5), (Q.Q8_0, Q.Q8_0), (0, 1)),
    "qkv": Case("qkv", 2, 256, (8, 4, 4), (Q.Q8_0, Q.Q8_0, Q.Q4_0), (2, 0, 1)),
    "column": Case("column", 2, 256, (6,), (Q.Q8_0,), (0,)),
    "row": Case("row", 2, 512, (3,), (Q.Q4_K,), (0,)),
}


@pytest.fixture
def eager():
    """vLLM compiles the masking of an embedding, which takes longer than all else here."""
    import torch

    with torch.compiler.set_stance("force_eager"):
        yield


def outcomes(findings):
    return {finding.outcome for finding in findings}


@pytest.mark.usefixtures("loaders")
class TestLayers:
    @pytest.mark.parametrize("kind", LINEAR)
    def test_a_linear_layer_of_two_ranks_holds_and_computes_its_part(self, kind):
        assert outcomes(judge_linear(LINEAR[kind])) == {Outcome.PASSED}

    @pytest.mark.usefixtures("eager")
    @pytest.mark.parametrize("kind", ["embedding", "head"])
    def test_a_vocabulary_layer_of_two_ranks_holds_its_part(self, kind):
        assert outcomes(judge_vocabulary(Case(kind, 2, 256, (100,), (Q.Q8_0,), (0,)))) == {Outcome.PASSED}

    def test_experts_of_two_ranks_hold_their_part(self):
        case = Case("experts", 2, 256, (256,), (Q.Q8_0, Q.Q8_0, Q.Q4_K), tuple(range(3 * EXPERTS)), width=512)
        assert outcomes(judge_experts(case)) == {Outcome.PASSED}

    def test_layers_are_of_vllms_classes_for_their_kind(self):
        from vllm.model_executor.layers import linear
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

        classes = {
            "merged": linear.MergedColumnParallelLinear,
            "qkv": linear.QKVParallelLinear,
            "column": linear.ColumnParallelLinear,
            "row": linear.RowParallelLinear,
        }
        for kind, layer_class in classes.items():
            held = self.load(LINEAR[kind])
            assert type(held.layer) is layer_class
            assert held.layer.bias is None
            self.check_place(held.layer, LINEAR[kind].columns)
        fused = self.load(LINEAR["fused"]).layer
        assert type(fused).__name__ == "DeepSeekV2FusedQkvAProjLinear"
        self.check_place(fused, 256)
        assert self.load(LINEAR["row"]).layer.reduce_results is False
        part = Part(None, Q.Q8_0, Tensors.of(LINEAR["column"]).raws["part0"])
        assert type(simulated.load_vocabulary("embedding", 256, 6, part, 0, 1).layer) is VocabParallelEmbedding
        assert type(simulated.load_vocabulary("head", 256, 6, part, 0, 1).layer) is ParallelLMHead

    def check_place(self, layer, columns):
        """It is as wide as the whole model's, and has a name that no layer of a real model has."""
        assert (layer.input_size, layer.prefix) == (columns, "a.b")

    def test_experts_are_those_of_a_layer_of_a_model(self):
        case = Case("experts", 2, 256, (256,), (Q.Q8_0, Q.Q8_0, Q.Q4_K), (), width=512)
        raws = Tensors.of(case).raws
        slots = enumerate(("w1", "w3", "w2"))
        parts = [
            Part(w, case.types[n], raws[f"part{n}"][expert], expert) for n, w in slots for expert in range(EXPERTS)
        ]
        layer = simulated.load_experts(EXPERTS, case.columns, case.width, parts, 1, 2)[0].layer
        assert (layer.layer_name, layer.top_k, layer.hidden_size) == ("model.layers.1.mlp.experts", 2, 256)

    def load(self, case, rank=1):
        raws = Tensors.of(case).raws
        slots = "qkv" if case.kind == "qkv" else range(len(case.rows))
        parts = [Part(slots[n] if len(case.rows) > 1 else None, case.types[n], raws[f"part{n}"]) for n in case.order]
        return simulated.load_linear(case.kind, case.columns, case.rows, parts, rank, case.ranks)

    def test_heads_of_a_qkv_layer_have_two_rows(self):
        layer = self.load(LINEAR["qkv"]).layer
        assert (layer.head_size, layer.total_num_heads, layer.total_num_kv_heads) == (2, 4, 2)

    @pytest.mark.usefixtures("eager")
    def test_an_embedding_gives_zeros_for_tokens_of_other_ranks(self):
        raw = Tensors.of(Case("embedding", 2, 256, (128,), (Q.Q8_0,), (0,))).raws["part0"]
        held = simulated.load_vocabulary("embedding", 256, 128, Part(None, Q.Q8_0, raw), 1, 2)
        found = simulated.embedded(held, [0, 63, 64, 127], 1, 2)
        weights = dequantise(raw, Q.Q8_0)
        assert found.shape == (4, 256)
        assert not found[:2].any()
        assert np.array_equal(found[2:], weights[[64, 127]])

    def test_a_row_parallel_layer_gives_its_part_of_the_sum(self):
        case = LINEAR["row"]
        inputs = np.ones((2, 256), np.float32)
        weights = dequantise(Tensors.of(case).raws["part0"], Q.Q4_K)
        for rank, columns in ((0, slice(0, 256)), (1, slice(256, 512))):
            found = simulated.output(self.load(case, rank), inputs, rank, 2)
            assert found == pytest.approx(inputs @ weights[:, columns].T, rel=1e-3, abs=1e-2)


@pytest.mark.usefixtures("unfixed_loaders")
class TestRanks:
    def test_within_it_this_process_is_that_rank(self):
        import torch
        from vllm.config import get_current_vllm_config
        from vllm.distributed import parallel_state

        with simulated.as_rank(3, 4):
            group = parallel_state.get_tp_group()
            assert (group.rank, group.rank_in_group, group.local_rank, group.world_size) == (3, 3, 3, 4)
            assert group.ranks == [0, 1, 2, 3]
            assert group.device_group is None
            assert group.cpu_group is None
            assert get_current_vllm_config().parallel_config.tensor_parallel_size == 4
            tensor = torch.ones(2)
            assert group.all_reduce(tensor) is tensor
            for name in ("_DP", "_PCP", "_DCP", "_EP", "_PP"):
                one = getattr(parallel_state, name)
                assert (one.rank, one.world_size, one.ranks) == (0, 1, [0])

    def test_groups_of_before_are_back_afterwards_also_after_an_error(self, monkeypatch):
        from vllm.distributed import parallel_state

        names = ("_TP", "_DP", "_PCP", "_DCP", "_EP", "_PP")
        for name in names:
            monkeypatch.setattr(parallel_state, name, f"before {name}", raising=False)
        with simulated.as_rank(0, 1):
            assert parallel_state._TP != "before _TP"
        with pytest.raises(ZeroDivisionError), simulated.as_rank(0, 1):
            raise ZeroDivisionError
        assert [getattr(parallel_state, name) for name in names] == [f"before {name}" for name in names]

    def test_each_number_of_ranks_has_a_config_of_its_own(self):
        from vllm.config import get_current_vllm_config

        sizes = []
        for ranks in (2, 4, 2):
            with simulated.as_rank(0, ranks):
                sizes.append(get_current_vllm_config().parallel_config.tensor_parallel_size)
        assert sizes == [2, 4, 2]

    def test_the_config_is_that_of_the_installed_gguf_layers(self):
        config = simulated.gguf_config()
        assert config.get_name() == "gguf"
        assert config.unquantized_modules == []
