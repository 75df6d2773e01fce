"""What the sharding checks say, case by case; the approved words are in findings.txt."""

from dataclasses import replace

import numpy as np
import pytest

from glm5check.checks import sharding
from glm5check.sharding.contract import Contract, Unmet
from glm5check.sharding.live import Expectation, LiveParameter
from tests.selftest.approved import approved, told

WHERE = {"layer": "a.b", "rank": "1"}
BYTES = np.arange(24, dtype=np.uint8).reshape(4, 6)
DRIFT = Unmet(method="load_a", argument="tp_rank", default="0", caller="Linear.loader")
MORE = replace(DRIFT, method="load_b", argument="size", default="None")
AGREED = Contract(unmet=(), compensated=True, versions="vllm 0.32")
DRIFTED = Contract(unmet=(DRIFT, MORE), compensated=False, versions="vllm 0.32")


def changed(*places):
    got = BYTES.copy()
    for place in places:
        got[place] += 1
    return got


def held(got, want=BYTES, **suspects):
    return lambda: sharding.held_bytes(got, want, WHERE, suspects=suspects or None)


def contract(read, ranks, layers=1):
    return lambda: sharding.loader_contract(read, [f"layer{i}" for i in range(layers)], ranks)


def parameter(name="a.qweight", rank=0, digest="right", **more):
    return LiveParameter(name=name, rank=rank, digest=digest, shape=(2, 2), address=1 + rank, device="cpu", **more)


def expected(name="a.qweight", rank=0, digest="right", types=(), tensors=("blk.0.a", "blk.0.b")):
    return Expectation(name=name, rank=rank, digest=digest, types=types, tensors=tensors)


BOTH = [expected(), expected(rank=1, digest="second")]
ATTENTION, GATE = "model.layers.1.self_attn.a.weight", "model.layers.1.mlp.gate.weight"
INDEXER = "model.layers.1.self_attn.indexer.wk.weight"


def live(*parameters, want=BOTH):
    return lambda: sharding.live_parameters(parameters, want)


def coverage(*parameters, tensors=("blk.0.a", "blk.0.b"), want=BOTH):
    return lambda: sharding.live_coverage(parameters, want, tensors)


def apart(*parameters):
    return lambda: sharding.separate_memory(parameters)


def at(address, name, rank=0, device="cpu", shape=(1,)):
    return LiveParameter(name=name, rank=rank, address=address, device=device, shape=shape)


CASES = {
    "a rank holds its bytes": held(BYTES.copy()),
    "a rank holds other bytes in two rows": held(changed((1, 2), (1, 3), (3, 0))),
    "a rank holds what a suspect would leave": held(changed((0, 0)), first=changed((1, 0)), second=changed((0, 0))),
    "a rank holds what no suspect would leave": held(changed((0, 0)), first=changed((1, 0))),
    "a rank holds fewer rows": held(BYTES[:3]),
    "experts differ in the last row": held(
        changed((3, 5)).reshape(2, 2, 6), want=BYTES.reshape(2, 2, 6), first=changed((3, 5))
    ),
    "the types are the file's": lambda: sharding.held_types([12, 2], (12, 2), WHERE),
    "a type is another one": lambda: sharding.held_types([12, 12], (12, 2), WHERE),
    "vLLM and the plugin agree": contract(AGREED, 2),
    "vLLM and the plugin agree though nothing makes up for it": contract(replace(AGREED, compensated=False), 2),
    "a drift is compensated": contract(replace(DRIFTED, compensated=True), 2),
    "a drift does not show on one rank": contract(DRIFTED, 1),
    "a drift shows on two ranks": contract(DRIFTED, 2, layers=4),
    "a drift shows in five layers": contract(DRIFTED, 8, layers=5),
    "two ranks hold their digests": live(parameter(), parameter(rank=1, digest="second")),
    "the second rank holds the bytes of the first": live(parameter(), parameter(rank=1, digest="right")),
    "the first rank holds the bytes of the second": live(
        parameter(digest="second"), parameter(rank=1, digest="second")
    ),
    "a rank holds bytes of nobody, and the next its own": live(
        parameter(digest="none"), parameter(rank=1, digest="second")
    ),
    "a parameter is decoded with other types": live(parameter(types=(12, 12)), want=[expected(types=(12, 2))]),
    "a parameter is decoded with its types": live(parameter(types=(12, 2)), want=[expected(types=(12, 2))]),
    "two parameters are decoded with other types": live(
        parameter(types=(12,)),
        parameter("b.qweight", types=(2,)),
        want=[expected(types=(2,)), expected("b.qweight", types=(12,))],
    ),
    "a parameter does not say its types": live(parameter(), want=[expected(types=(12, 2))]),
    "there is nothing to compare": live(parameter(), want=[]),
    "every tensor is compared": coverage(parameter(), parameter(rank=1)),
    "a parameter is not compared": coverage(
        parameter(), parameter(rank=1), at(9, "z.weight"), at(9, "b.weight"), at(9, "a.qweight_type")
    ),
    "no parameter holds two tensors": coverage(
        at(1, ATTENTION), tensors=("blk.1.z.weight", "blk.1.ffn_gate_inp.weight", "blk.0.a", "output.weight")
    ),
    "indexers were not built": coverage(
        at(1, ATTENTION), tensors=("blk.1.indexer.k.weight", "blk.1.indexer.a.weight", "blk.0.a")
    ),
    "indexers were not built and a block was not loaded": coverage(
        at(1, ATTENTION), tensors=("blk.1.indexer.k.weight", "blk.2.b.weight"), want=[]
    ),
    "an indexer was built and does not hold it": coverage(at(1, INDEXER), tensors=("blk.1.indexer.k.weight",), want=[]),
    "a block was not loaded": coverage(at(1, ATTENTION), tensors=("blk.2.nextn.a.weight", "blk.2.b.weight"), want=[]),
    "a router was packed": coverage(at(1, GATE, shape=(0,)), tensors=("blk.1.ffn_gate_inp.weight",), want=[]),
    "a router was not packed": coverage(at(1, GATE), tensors=("blk.1.ffn_gate_inp.weight",), want=[]),
    "parameters lie apart": apart(at(1, "a"), at(2, "b"), at(1, "a", rank=1), at(1, "c", device="cuda")),
    "two parameters share memory": apart(at(1, "a"), at(2, "b"), at(1, "c"), at(7, "a", rank=1), at(7, "c", rank=1)),
    "absorbed and empty parameters may share": apart(
        at(1, "a"), at(1, "x.W_UK_T"), at(1, "x.W_UV"), at(1, "empty", shape=(2, 0))
    ),
    "parameters have no address": apart(at(0, "a"), at(0, "b")),
    "there are no parameters": apart(),
}


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]
