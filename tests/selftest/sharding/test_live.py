"""The comparison of a live server with the files: right servers pass, wrong ones are told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fixtures.gguf_files import usual_type, write_set
from glm5check.checkpoint.header import TensorInfo
from glm5check.checkpoint.index import GgufSet
from glm5check.checks import sharding
from glm5check.checks.causes import MERGED_RANK
from glm5check.errors import CheckpointError, ServerError
from glm5check.glm5.dimensions import Dimensions
from glm5check.glm5.tensors import expected_tensors
from glm5check.records import Outcome
from glm5check.sharding.expected import assembled, digest, float_chunks
from glm5check.sharding.live import LiveParameter, Reference, read_parameters
from glm5check.sharding.partition import partition
from glm5check.synth.geometry import Geometry
from glm5check.vllm_plugin import parameters as probe

RANKS = 2
KV_B = "model.layers.1.self_attn.kv_b_proj"
GATE_UP = "model.layers.0.mlp.gate_up_proj.qweight"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return GgufSet.open(write_set(tmp_path_factory.mktemp("micro"), parts=2))


@pytest.fixture(scope="module")
def reference(model):
    return Reference(model, RANKS)


@pytest.fixture
def live(reference):
    """A server that holds everything right: raw bytes where GGUF layers have them, float32 elsewhere."""
    found = []
    for rank in range(RANKS):
        for module, parameter in reference.parameters[rank].items():
            raw = parameter.kind in ("linear", "experts") and not any(p.tensor.qtype == 0 for p in parameter.pieces)
            suffix = "" if module.endswith(("_bias", ".bias")) else ".weight"
            name = parameter.quantised_name if raw else module + suffix
            types = parameter.quant_types if raw else ()
            address = len(found) + 1
            found.append(
                LiveParameter(
                    name=name, rank=rank, shape=(1,), dtype="uint8" if raw else "float32", types=types, address=address
                )
            )
    digests = {(wanted.name, wanted.rank): wanted.digest for wanted in reference.expectations(found)}
    return [replace(parameter, digest=digests[parameter.name, parameter.rank]) for parameter in found]


def failed(findings):
    assert findings
    return [finding for finding in findings if finding.outcome is Outcome.FAILED]


def change(live, name, rank, **changes):
    return [replace(p, **changes) if (p.name, p.rank) == (name, rank) else p for p in live]


def digest_of(live, name, rank):
    return next(p.digest for p in live if (p.name, p.rank) == (name, rank))


def test_a_right_server_passes(live, reference, model):
    expected = reference.expectations(live)
    assert len(expected) == len(live)
    assert not failed(sharding.live_parameters(live, expected))
    assert not failed(sharding.live_coverage(live, expected, model.tensors))
    assert not failed(sharding.separate_memory(live))


def test_the_rows_of_rank_0_are_recognised(live, reference):
    """FI-2 on a live server."""
    wrong = change(live, GATE_UP, 1, digest=digest_of(live, GATE_UP, 0))
    (finding,) = failed(sharding.live_parameters(wrong, reference.expectations(wrong)))
    assert finding.got == "the bytes of rank 0"
    assert finding.cause == MERGED_RANK
    assert "blk.0.ffn_gate.weight, blk.0.ffn_up.weight" in finding.where["tensors"]


def test_other_bytes_are_seen(live, reference):
    """FI-1, FI-5: parts or heads in another order are other bytes."""
    wrong = change(live, "model.layers.0.self_attn.q_b_proj.qweight", 0, digest="0" * 64)
    (finding,) = failed(sharding.live_parameters(wrong, reference.expectations(wrong)))
    assert finding.got == "other bytes"


def test_a_wrong_type_for_right_bytes_is_seen(live, reference):
    """FI-6."""
    name = "model.layers.1.mlp.experts.routed_experts.w13_qweight"
    wrong = change(live, name, 1, types=(12, 2))
    (finding,) = failed(sharding.live_parameters(wrong, reference.expectations(wrong)))
    assert finding.check == "sharding.types"


def test_a_tensor_that_was_not_loaded_is_seen(live, reference, model):
    """FI-4."""
    wrong = [p for p in live if not p.name.endswith("e_score_correction_bias")]
    (finding,) = failed(sharding.live_coverage(wrong, reference.expectations(wrong), model.tensors))
    assert "no parameter holds: blk.1.exp_probs_b.bias" in finding.got


def test_a_tied_output_matrix_is_seen(live):
    """FI-3."""
    embedding = next(p for p in live if p.name == "model.embed_tokens.qweight" and p.rank == 0)
    wrong = change(live, "lm_head.qweight", 0, address=embedding.address)
    (finding,) = failed(sharding.separate_memory(wrong))
    assert "model.embed_tokens.qweight and lm_head.qweight" in finding.got


def test_parameters_that_were_packed_are_named(live, reference, model):
    wrong = change(
        change(live, "model.layers.1.mlp.gate.weight", 0, shape=(0,)), "model.layers.1.mlp.gate.weight", 1, shape=(0,)
    )
    (finding,) = sharding.live_coverage(wrong, reference.expectations(wrong), model.tensors)
    assert finding.outcome is Outcome.PASSED
    assert "packed by vLLM for its kernel, so its bytes are gone: blk.1.ffn_gate_inp.weight" in finding.got


def test_a_dense_server_without_indexers_is_right(live, reference, model):
    dense = [p for p in live if ".indexer." not in p.name]
    (finding,) = sharding.live_coverage(dense, reference.expectations(dense), model.tensors)
    assert finding.outcome is Outcome.PASSED
    assert "vLLM built no indexer" in finding.got


def test_nothing_to_compare_is_inconclusive():
    assert {f.outcome for f in sharding.live_parameters([], [])} == {Outcome.INCONCLUSIVE}
    assert {f.outcome for f in sharding.separate_memory([])} == {Outcome.INCONCLUSIVE}


class TestKvB:
    """FI-7: kv_b is rebuilt from two tensors, and wrong ways of doing it have right shapes."""

    @pytest.fixture
    def wanted(self, model, reference):
        return assembled(float_chunks(reference.parameters[1][KV_B], model.raw, "float32"))

    @pytest.fixture
    def halves(self, model):
        return (torch.from_numpy(model.dequantise(f"blk.1.attn_{part}_b.weight"))[8:] for part in ("k", "v"))

    def test_the_adapter_and_the_reference_agree(self, wanted, halves):
        pytest.importorskip("vllm", reason="inconclusive: vLLM is not installed")
        from glm5check.vllm_plugin.gguf_plugin import import_gguf_plugin

        import_gguf_plugin()
        from glm5check.vllm_plugin.adapter import join_kv_b

        assert np.array_equal(join_kv_b(*halves).numpy(), wanted)

    def test_a_forgotten_transpose_is_other_bytes(self, wanted, halves):
        keys, values = halves
        wrong = torch.cat([keys.reshape(8, 32, 64), values], dim=1).reshape(-1, 64)
        assert wrong.shape == wanted.shape
        assert digest(iter([wrong.numpy()])) != digest(iter([wanted]))

    def test_heads_not_interleaved_are_other_bytes(self, wanted, halves):
        keys, values = halves
        wrong = torch.cat([keys.transpose(1, 2).reshape(-1, 64), values.reshape(-1, 64)])
        assert wrong.shape == wanted.shape
        assert digest(iter([wrong.numpy()])) != digest(iter([wanted]))


class TestProbe:
    def test_it_digests_in_logical_order_whatever_the_strides(self):
        tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4)
        assert probe.digest(tensor.T) == probe.digest(tensor.T.contiguous()) != probe.digest(tensor)
        assert probe.digest(tensor) == digest(iter([tensor.numpy()]))
        assert probe.digest(torch.tensor(1.0)) == digest(iter([np.array([1.0], np.float32)]))

    def test_a_parameter_that_was_never_materialised_is_told(self):
        model = torch.nn.Module()
        model.register_parameter("lazy", torch.nn.UninitializedParameter())
        assert probe.describe(model, "lazy", model.lazy) == {"error": "never materialised"}

    def test_it_returns_its_exceptions(self):
        """A raised one would leave the other ranks' replies in vLLM's queue."""
        assert "AttributeError" in probe.Parameters().parameter_sizes()["error"]

    def test_an_error_of_one_rank_is_a_server_error(self):
        with pytest.raises(ServerError, match="probe of rank 1 failed: boom"):
            read_parameters(lambda method, *_: [{"a": 1}, {"error": "boom"}])

    def test_calls_are_cut_into_windows(self):
        calls = []

        def rpc(method, *arguments):
            if method == "parameter_sizes":
                return [{"a": 3 << 30, "b": 3 << 30, "c": 1}]
            calls.append(arguments)
            return [{"rank": 0, "parameters": {}}]

        read_parameters(rpc)
        assert calls == [("0", "1"), ("1", "2")]


def test_the_reference_covers_every_tensor_once_a_rank(model, reference):
    """Rows, columns, heads and experts of all ranks together are the whole tensor."""
    for name, tensor in model.tensors.items():
        held = [
            p
            for rank in range(RANKS)
            for q in reference.parameters[rank].values()
            for p in q.pieces
            if p.tensor.name == name
        ]
        rows = sum(len(piece.rows) * len(piece.columns) * (len(piece.heads) if piece.heads else 1) for piece in held)
        whole = int(np.prod(tensor.shape[-2:])) * (tensor.shape[0] if held[0].heads else 1)
        assert rows in (whole, RANKS * whole), name


def test_uneven_ranks_are_refused(model):
    specs = list(expected_tensors(Dimensions.from_gguf(model.metadata)))
    with pytest.raises(CheckpointError, match="3 ranks cannot share"):
        list(partition(specs, model.tensors, 3, 0))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_every_tensor_of_glm_5_itself_can_be_cut(ranks):
    """The real dimensions and the types of a Q4_K_XL file: rows, columns and heads of all ranks add up."""
    infos, specs = glm_5()
    held = [list(partition(specs, infos, ranks, rank)) for rank in range(ranks)]
    for same in zip(*held, strict=True):
        (kind,) = {parameter.kind for parameter in same}
        rows = [sum(len(piece.rows) for piece in parameter.pieces) for parameter in same]
        assert len({parameter.row_bytes for parameter in same}) == 1
        assert len({parameter.rows for parameter in same}) == 1, f"{same[0].module} {kind} {rows}"


def test_glm_5s_down_experts_cannot_be_cut_in_16():
    """2,048 columns of a K-quant are half a super-block for each of 16 ranks."""
    infos, specs = glm_5()
    with pytest.raises(CheckpointError, match=r"128 columns of blk.3.ffn_down_exps.weight for each of 16 ranks"):
        list(partition(specs, infos, 16, 0))


def glm_5():
    specs = list(expected_tensors(Dimensions.from_hf(Geometry(nextn_layers=1).config), nextn=True))
    infos = {
        spec.gguf: TensorInfo(name=spec.gguf, qtype=usual_type(spec), shape=spec.shape, file=Path("glm-5"), offset=0)
        for spec in specs
    }
    return infos, specs
