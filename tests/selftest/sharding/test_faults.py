"""The sharding tests see the faults that they are for, and say which one it is."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from fixtures.loader_cases import (
    EXPERTS,
    Case,
    Tensors,
    expert_cases,
    judge_experts,
    judge_linear,
    judge_vocabulary,
    linear_cases,
)
from fixtures.strategies import hold
from glm5check.checks import sharding
from glm5check.checks.causes import MERGED_RANK
from glm5check.checks.sharding import LOAD_ORDER
from glm5check.records import Outcome
from glm5check.sharding import simulated
from glm5check.sharding.contract import arguments_passed, arguments_read, read_contract
from glm5check.sharding.simulated import Part

Q = GGMLQuantizationType
IN_ORDER = tuple(range(3 * EXPERTS))


def merged(ranks=1, order=(1, 0), types=(Q.Q8_0, Q.Q8_0)):
    return Case("merged", ranks, 256, (3 * ranks, 5 * ranks), types, order)


def failed(findings):
    assert findings
    return [finding for finding in findings if finding.outcome is Outcome.FAILED]


class TestLoadOrder:
    """FI-1, the first historical fault: parts joined in load order."""

    @pytest.fixture(autouse=True)
    def join_in_load_order(self, loaders, monkeypatch):
        from vllm_gguf_plugin.quantization import linear

        monkeypatch.setattr(linear, "_gguf_ordered_shard_ids", list)

    @pytest.mark.parametrize("types", [(Q.Q8_0, Q.Q8_0), (Q.Q8_0, Q.Q4_K), (Q.Q4_K, Q.Q4_0)])
    def test_it_is_seen_and_named(self, types):
        findings = failed(judge_linear(merged(types=types)))
        assert LOAD_ORDER in {finding.cause for finding in findings}

    def test_one_order_alone_could_not_see_it(self):
        assert not failed(judge_linear(merged(order=(0, 1))))

    @pytest.mark.parametrize("kind", ["merged", "fused"])
    def test_the_property_finds_it(self, kind):
        assert failed(hold(linear_cases(kind), judge_linear, examples=30))

    def test_the_output_alone_gives_it_away(self):
        findings = failed(judge_linear(merged()))
        assert "dequant.kernel_product" in {finding.check for finding in findings}


class TestMergedRank:
    """FI-2: the plugin as it is, on a vLLM that does not tell it the rank."""

    @pytest.fixture(autouse=True)
    def needed(self, unfixed_loaders):
        from vllm.model_executor.layers.linear import MergedColumnParallelLinear  # noqa: F401

        from glm5check.vllm_plugin.fixes import merged_rank

        if not merged_rank.is_needed():
            pytest.skip("inconclusive: the installed versions do not have this fault")

    def test_it_is_seen_and_named(self):
        findings = failed(judge_linear(merged(ranks=2)))
        assert MERGED_RANK in {finding.cause for finding in findings}
        assert {finding.where["rank"] for finding in findings} == {"1"}

    def test_one_rank_alone_could_not_see_it(self):
        assert not failed(judge_linear(merged(ranks=1)))

    def test_the_property_finds_it(self):
        assert failed(hold(linear_cases("merged"), judge_linear, examples=30))

    def test_the_contract_names_it_before_anything_runs(self):
        (finding,) = failed(sharding.loader_contract(read_contract(), ["model.layers.0.mlp.gate_up_proj"], 2))
        assert "reads 'tp_rank' (default 0)" in finding.got
        assert "model.layers.0.mlp.gate_up_proj" in finding.where["layers"]
        assert "vllm-gguf-plugin" in finding.where["versions"]

    def test_it_does_not_matter_on_one_rank(self):
        assert not failed(sharding.loader_contract(read_contract(), ["a"], 1))

    def test_other_layers_are_not_blamed(self):
        assert not failed(judge_linear(Case("fused", 2, 256, (3, 5), (Q.Q8_0, Q.Q8_0), (1, 0))))
        assert not failed(judge_linear(Case("row", 2, 512, (3,), (Q.Q8_0,), (0,))))

    def test_the_fix_mends_it(self):
        from glm5check.vllm_plugin.fixes import merged_rank

        merged_rank.apply()
        assert not failed(judge_linear(merged(ranks=2)))
        assert not failed(sharding.loader_contract(read_contract(), ["a"], 2))


@pytest.mark.usefixtures("loaders")
class TestOtherFaults:
    def test_permuted_heads_are_seen(self, monkeypatch):
        """FI-5: rows of q_b in another order of heads."""
        load = simulated._filled

        def permuted(layer, parts):
            return load(layer, [part._replace(raw=part.raw[::-1].copy()) for part in parts])

        monkeypatch.setattr(simulated, "_filled", permuted)
        assert failed(judge_linear(Case("column", 2, 256, (8,), (Q.Q8_0,), (0,))))

    def test_gate_decoded_with_the_type_of_up_is_seen(self):
        """FI-6: Q4_K with Q4_0 have equal sizes, so bytes and shapes are right; the type is not."""
        case = Case("experts", 1, 256, (256,), (Q.Q4_K, Q.Q4_0, Q.Q8_0), IN_ORDER, width=256)
        (finding, *_) = failed(judge_experts(case))
        assert finding.check == "sharding.types"
        assert (finding.got, finding.want) == ("(12, 12)", "(12, 2)")

    def test_gate_and_up_exchanged_are_seen(self, monkeypatch):
        """FI-6."""
        load = simulated.load_experts
        other = {"w1": "w3", "w3": "w1", "w2": "w2"}

        def exchanged(experts, hidden, width, parts, rank, ranks):
            return load(experts, hidden, width, [part._replace(slot=other[part.slot]) for part in parts], rank, ranks)

        monkeypatch.setattr(simulated, "load_experts", exchanged)
        case = Case("experts", 1, 256, (256,), (Q.Q8_0, Q.Q8_0, Q.Q8_0), IN_ORDER, width=256)
        assert "sharding.bytes" in {finding.check for finding in failed(judge_experts(case))}

    def test_stale_padding_rows_are_seen(self, monkeypatch):
        load = simulated.load_vocabulary

        def stale(*arguments):
            held = load(*arguments)
            held.layer.qweight.data[-1] = 1
            return held

        monkeypatch.setattr(simulated, "load_vocabulary", stale)
        assert failed(judge_vocabulary(Case("head", 2, 256, (100,), (Q.Q8_0,), (0,))))

    def test_half_a_block_a_rank_is_cut_by_the_loader_and_refused_by_the_partition(self):
        """The loader slices bytes without looking at block borders: 1.5 blocks of Q8_0 for each of two ranks."""
        from glm5check.errors import CheckpointError

        case = Case("row", 2, 96, (4,), (Q.Q8_0,), (0,))
        tensors = Tensors.of(case)
        part = Part(None, Q.Q8_0, tensors.raws["part0"])
        held = simulated.load_linear("row", 96, (4,), [part], 0, 2)
        assert held.raw.shape == (4, 51)
        with pytest.raises(CheckpointError, match="no whole blocks of 32"):
            tensors.held_by(0, 2)

    def test_expert_cases_cover_every_number_of_ranks(self):
        seen = set()
        hold(expert_cases(), lambda case: seen.add(case.ranks) or [], examples=60)
        assert seen == {1, 2, 4, 8, 16}


class TestContract:
    def test_a_caller_that_passes_the_rank_satisfies_it(self):
        source = (
            "def f(self):\n    param.load_merged_column_weight(loaded_weight=w, shard_size=s, tp_rank=self.tp_rank)\n"
        )
        assert "tp_rank" in arguments_passed(source, "load_merged_column_weight")

    def test_a_caller_that_passes_it_in_one_branch_only_does_not(self):
        source = (
            "def f(self):\n    if a:\n        param.load_qkv_weight(shard_size=s, tp_rank=r)\n"
            "    else:\n        param.load_qkv_weight(shard_size=s)\n"
        )
        assert "tp_rank" not in arguments_passed(source, "load_qkv_weight")

    def test_defaults_are_read(self):
        source = "def f(self, **kwargs):\n    rank = kwargs.get('tp_rank', 0)\n    size = kwargs.get('shard_size')\n"
        assert arguments_read(source) == {"tp_rank": "0", "shard_size": "None"}


def test_simulated_ranks_leave_no_group_behind(unfixed_loaders):
    from vllm.distributed import parallel_state

    before = parallel_state._TP
    with simulated.as_rank(3, 4):
        assert parallel_state.get_tensor_model_parallel_rank() == 3
    assert parallel_state._TP is before


def test_a_difference_says_where():
    got, want = np.zeros((4, 8), np.uint8), np.zeros((4, 8), np.uint8)
    got[2, 3] = 1
    (finding,) = sharding.held_bytes(got, want, {"rank": "1"})
    assert "1 of 4 rows differ, the first of them row 2" in finding.got
    (finding,) = sharding.held_bytes(got[:3], want, {})
    assert "shape (3, 8) instead of (4, 8)" in finding.got
