"""What the workers' probe answers becomes: parameters, windows of calls, errors, and what is expected of each."""

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fixtures.gguf_files import DIMENSIONS, gguf_keys, usual_type, write_set
from glm5check.checkpoint.header import TensorInfo
from glm5check.checkpoint.index import GgufSet
from glm5check.errors import ServerError
from glm5check.glm5.dimensions import ARCHITECTURE
from glm5check.glm5.tensors import expected_tensors
from glm5check.sharding import live
from glm5check.sharding.live import LiveParameter, Reference, read_parameters

TOLD = {
    "digest": "abc",
    "shape": [2, 3],
    "dtype": "uint8",
    "types": [12, 2],
    "address": "4096",
    "device": "cuda:0",
}


class Probe:
    """Answers as two ranks do; remembers what it was asked."""

    def __init__(self, sizes, **told):
        self.sizes, self.told, self.asked = sizes, told, []

    def __call__(self, method, *arguments):
        self.asked.append((method, *arguments))
        if method == "parameter_sizes":
            return [self.sizes, self.sizes]
        names = list(self.sizes)[int(arguments[0]) : int(arguments[0]) + int(arguments[1])]
        return [{"rank": str(rank), "parameters": {name: self.told[name] for name in names}} for rank in (0, 1)]


def test_every_parameter_of_every_rank_is_read_as_it_is_told():
    probe = Probe({"a": 10, "b": 20}, a=TOLD, b={"error": "never materialised"})
    assert read_parameters(probe) == [
        parameter
        for rank in (0, 1)
        for parameter in (
            LiveParameter(
                name="a",
                rank=rank,
                digest="abc",
                shape=(2, 3),
                dtype="uint8",
                types=(12, 2),
                address=4096,
                device="cuda:0",
            ),
            LiveParameter(name="b", rank=rank, error="never materialised"),
        )
    ]
    assert probe.asked == [("parameter_sizes",), ("parameter_digests", "0", "2")]


@pytest.mark.parametrize(
    ("sizes", "windows"),
    [
        ([], []),
        ([1], [("0", "1")]),
        ([4, 6], [("0", "2")]),
        ([4, 7], [("0", "1"), ("1", "1")]),
        ([11, 1], [("0", "1"), ("1", "1")]),
        ([1, 9, 10, 1, 9, 1], [("0", "2"), ("2", "1"), ("3", "2"), ("5", "1")]),
        ([5, 5, 1, 9, 1], [("0", "2"), ("2", "2"), ("4", "1")]),
    ],
)
def test_a_call_digests_as_many_parameters_as_fit_its_window(sizes, windows, monkeypatch):
    monkeypatch.setattr(live, "WINDOW_BYTES", 10)
    names = [f"p{i}" for i in range(len(sizes))]
    probe = Probe(dict(zip(names, sizes, strict=True)), **dict.fromkeys(names, TOLD))
    said = []
    found = read_parameters(probe, said.append)
    assert probe.asked[1:] == [("parameter_digests", *window) for window in windows]
    assert sorted({parameter.name for parameter in found}) == names
    assert len(found) == 2 * len(names)
    assert said == [
        f"digesting parameters {int(first) + 1} to {int(first) + int(count)} of {len(sizes)} on 2 ranks"
        for first, count in windows
    ]


@pytest.mark.parametrize(
    ("answers", "what", "do"),
    [
        ([{"a": 1}, {"error": "boom"}], "the probe of rank 1 failed: boom", "read the server's log"),
        (["no"], "the probe of rank 0 failed: no", "read the server's log"),
        ([None, {"a": 1}], "the probe of rank 0 failed: None", "read the server's log"),
        ([], "no rank answered the probe", "start the server with the probe as worker extension"),
    ],
)
def test_a_probe_that_fails_says_why_and_what_to_do(answers, what, do):
    with pytest.raises(ServerError) as caught:
        read_parameters(lambda *_: answers)
    assert (caught.value.what, caught.value.do) == (what, do)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return GgufSet.open(write_set(tmp_path_factory.mktemp("micro")))


@pytest.fixture(scope="module")
def reference(model):
    return Reference(model, 2)


def parameter(name, rank=1, dtype="float32", **more):
    return LiveParameter(name=name, rank=rank, dtype=dtype, shape=(1,), **more)


def sha(array):
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def test_a_quantised_parameter_is_expected_as_its_raw_bytes_with_its_types(model, reference):
    (found,) = reference.expectations([parameter("model.layers.0.mlp.gate_up_proj.qweight", dtype="uint8")])
    gate, up = (model.raw(f"blk.0.ffn_{part}.weight")[256:] for part in ("gate", "up"))
    assert (found.name, found.rank) == ("model.layers.0.mlp.gate_up_proj.qweight", 1)
    assert found.digest == sha(np.concatenate([gate, up]))
    assert found.types == (8, 8)
    assert found.tensors == ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight")


def test_experts_are_found_under_their_own_name(model, reference):
    (found,) = reference.expectations(
        [parameter("model.layers.1.mlp.experts.routed_experts.w2_qweight", dtype="uint8")]
    )
    down = model.raw("blk.1.ffn_down_exps.weight")
    assert found.digest == sha(down[..., down.shape[-1] // 2 :])
    assert found.types == (13,)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("model.norm.weight", "output_norm.weight"),
        ("model.layers.1.mlp.gate.e_score_correction_bias", "blk.1.exp_probs_b.bias"),
        ("model.layers.1.self_attn.indexer.k_norm.bias", "blk.1.indexer.k_norm.bias"),
    ],
)
def test_a_float_parameter_is_expected_in_its_type_and_without_quant_types(name, tensor, model, reference):
    (found,) = reference.expectations([parameter(name)])
    assert (found.digest, found.types, found.tensors) == (sha(model.dequantise(tensor)), (), (tensor,))
    (narrow,) = reference.expectations([parameter(name, dtype="float16")])
    assert narrow.digest == sha(model.dequantise(tensor).astype(np.float16))


@pytest.mark.parametrize(("own", "part"), [("W_UK_T", "k"), ("W_UV", "v")])
def test_absorbed_matrices_are_expected_of_the_heads_of_the_rank(own, part, model, reference):
    (found,) = reference.expectations([parameter(f"model.layers.1.self_attn.mla_attn.{own}")])
    weights = model.dequantise(f"blk.1.attn_{part}_b.weight")[8:]
    assert found.digest == sha(weights.transpose(0, 2, 1))
    assert found.tensors == ("blk.1.attn_k_b.weight", "blk.1.attn_v_b.weight")


@pytest.mark.parametrize(
    "of_no_file",
    [
        parameter("model.layers.0.mlp.gate_up_proj.bias"),
        parameter("rotary.cos_sin_cache"),
        parameter("model.norm.weight", dtype="int8"),
        parameter("model.norm.weight", error="never materialised"),
        LiveParameter(name="model.norm.weight", rank=0, shape=(4, 0), dtype="float32"),
    ],
)
def test_nothing_is_expected_of_what_the_files_do_not_say(of_no_file, reference):
    assert reference.expectations([of_no_file, parameter("model.norm.weight")])[0].name == "model.norm.weight"
    assert len(reference.expectations([of_no_file, parameter("model.norm.weight")])) == 1


def test_the_bytes_of_a_tensor_are_let_go_once_it_is_digested(model, reference, monkeypatch):
    gone = []
    monkeypatch.setattr(model, "forget", gone.append)
    reference.expectations([parameter("model.layers.0.mlp.gate_up_proj.qweight", dtype="uint8")])
    assert gone == ["blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"]


def test_a_prediction_block_is_looked_for_too():
    """Servers that load it hold its tensors."""
    dims = replace(DIMENSIONS, nextn_layers=1)
    tensors = {
        spec.gguf: TensorInfo(name=spec.gguf, qtype=usual_type(spec), shape=spec.shape, file=Path("x"), offset=0)
        for spec in expected_tensors(dims, nextn=True)
    }
    metadata = gguf_keys(dims) | {"general.architecture": ARCHITECTURE}
    found = Reference(SimpleNamespace(metadata=metadata, tensors=tensors), 2).parameters
    assert len(found) == 2
    for held in found:
        assert held["model.layers.2.self_attn.kv_b_proj"].kind == "heads"
        assert {piece.tensor.name for one in held.values() for piece in one.pieces} == set(tensors)
