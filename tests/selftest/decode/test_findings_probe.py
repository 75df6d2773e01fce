"""What the checks of a probe's records say, case by case; the approved words are in findings_probe.txt."""

from dataclasses import replace

import numpy as np
import pytest

from fixtures.gguf_files import DIMENSIONS
from glm5check import tolerances
from glm5check.checks import decode
from glm5check.checks.causes import Installation
from glm5check.checks.decode.whitebox import route
from glm5check.records import AttentionWrites, RouterCall
from tests.selftest.approved import approved, told

FLOAT, REDUCED = Installation(ranks=2, reduced=False), Installation(ranks=2, reduced=True)
SEEN = AttentionWrites(layer="blk.0", rank=1, calls=6, rows=9, unwritten=0, other_tensor=0)
SIGMOID_0, SIGMOID_2 = 0.5, 1 / (1 + np.exp(-2.0))
BIAS = (0.0, 0.0, 0.25, 0.0)
LOGITS = ((2.0, 0.0, 0.0, 0.0), (0.0, 0.0, 2.0, 0.0))
"""Two of four experts: the first token takes 0 for its score, 2 for its bias; the second 2 and, first of equals, 0."""


def called(dimensions=DIMENSIONS, logits=LOGITS, bias=BIAS, by=1.0, **variant):
    """A call whose router weighted by a variant, in the order of the largest weight."""
    empty = RouterCall(
        layer="blk.1",
        rank=0,
        bias=bias,
        bias_dtype="float32",
        logits=logits,
        expert_ids=(),
        weights=(),
        output_scale=by,
    )
    dense = route(empty, dimensions, **variant)
    used = np.argsort(-dense, axis=1, kind="stable")[:, : dimensions.experts_used]
    weights = np.take_along_axis(dense, used, axis=1) / by
    return replace(empty, expert_ids=tuple(map(tuple, used.tolist())), weights=tuple(map(tuple, weights.tolist())))


def routed(*calls, installation=FLOAT, biases=None):
    stored = {"blk.1": BIAS} if biases is None else biases
    return lambda: decode.router_weights(calls, DIMENSIONS, stored, installation)


def scaled(factor, call=None):
    call = call or called()
    return replace(call, weights=tuple(tuple(w * factor for w in row) for row in call.weights))


def many(wrong, of=50):
    """So many tokens weighted otherwise, by a tenth, of 50."""
    call = called(logits=LOGITS * (of // 2))
    weights = [tuple(w * (1.1 if at < wrong else 1) for w in row) for at, row in enumerate(call.weights)]
    return replace(call, weights=tuple(weights))


CASES = {
    "every row was written": lambda: decode.attention_outputs([SEEN], 6),
    "rows are unwritten in one layer": lambda: decode.attention_outputs(
        [SEEN, replace(SEEN, layer="blk.1", unwritten=3), replace(SEEN, layer="blk.2")], 6
    ),
    "another tensor is returned": lambda: decode.attention_outputs([replace(SEEN, other_tensor=2)], 6),
    "rows are unwritten and another tensor is returned": lambda: decode.attention_outputs(
        [replace(SEEN, unwritten=1, other_tensor=1)], 6
    ),
    "a layer was seen too rarely, and one after it often": lambda: decode.attention_outputs(
        [replace(SEEN, calls=5), SEEN], 6
    ),
    "a fault was seen in the only call": lambda: decode.attention_outputs([replace(SEEN, calls=1, unwritten=1)], 6),
    "no layer was watched": lambda: decode.attention_outputs([], 6),
    "a router is right": routed(called()),
    "a router is right in reduced precision": routed(called(), installation=REDUCED),
    "a layer scales what its router does not": routed(called(by=2.5)),
    "two routers are right": routed(called(), replace(called(), layer="blk.2"), biases={"blk.1": BIAS, "blk.2": BIAS}),
    "a router takes softmax": routed(called(softmax=True)),
    "a router takes softmax in reduced precision": routed(scaled(1.0005, called(softmax=True)), installation=REDUCED),
    "a router keeps the bias in its weights": routed(called(in_weights=True)),
    "a router does not scale": routed(called(unscaled=True)),
    "a router scales twice": routed(called(twice=True)),
    "a router's weights sum to less": routed(scaled(0.9)),
    "a router's weights sum to more": routed(scaled(1.3)),
    "a router's weights sum to almost the same": routed(scaled(1.005)),
    "a router chooses other experts": routed(replace(called(), expert_ids=((0, 1), (2, 1)))),
    "a router divides zero by zero": routed(
        replace(called(), weights=((float("nan"), 0.5), called().weights[1])), installation=REDUCED
    ),
    "logits are infinite": routed(replace(called(), logits=((float("inf"), 0.0, 0.0, 0.0), (float("-inf"),) * 4))),
    "the second token is weighted otherwise": routed(
        replace(called(), weights=(called().weights[0], (1.0, 1.0))), installation=REDUCED
    ),
    "one token of fifty is a tie": routed(many(1), installation=REDUCED),
    "two tokens of fifty are no ties": routed(many(2), installation=REDUCED),
    "one token of fifty is none in float32": routed(many(1)),
    "the bias is another one": routed(replace(called(), bias=(0.0, 0.0, 0.5, 0.0), logits=())),
    "the bias lost values": routed(replace(called(), bias=(0.0,) * 4, logits=())),
    "the bias has too many values": routed(replace(called(), bias=(0.0, 1.0, 0.25, 0.0), logits=())),
    "the bias is held in bfloat16": routed(replace(called(), bias_dtype="bfloat16", logits=())),
    "the bias is rounded to float32": routed(
        replace(called(), bias=(float(np.float32(0.1)),) * 4, logits=()), biases={"blk.1": (0.1,) * 4}
    ),
    "both biases are rounded to float32": routed(
        replace(called(), bias=(0.1,) * 4, logits=()), biases={"blk.1": (0.1,) * 4}
    ),
    "the file's bias is not known": routed(replace(called(), logits=()), biases={}),
    "no router was watched": routed(),
}


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]


def test_a_router_by_hand():
    """Scores are sigmoids; the bias chooses expert 2 beside 0; weights sum to the routed scale."""
    first, second = route(called(), DIMENSIONS)
    whole = SIGMOID_0 + SIGMOID_2
    assert first == pytest.approx(np.array([SIGMOID_2, 0, SIGMOID_0, 0]) / whole * 2.5)
    assert second == pytest.approx(np.array([SIGMOID_0, 0, SIGMOID_2, 0]) / whole * 2.5)


@pytest.mark.parametrize(
    ("variant", "weights"),
    [
        ({"unscaled": True}, np.array([SIGMOID_2, 0, 0.5, 0]) / (0.5 + SIGMOID_2)),
        ({"twice": True}, np.array([SIGMOID_2, 0, 0.5, 0]) / (0.5 + SIGMOID_2) * 6.25),
        ({"in_weights": True}, np.array([SIGMOID_2, 0, 0.75, 0]) / (0.75 + SIGMOID_2) * 2.5),
        ({"softmax": True}, np.array([np.e**2, 0, 1, 0]) / (1 + np.e**2) * 2.5),
    ],
)
def test_wrong_routers_by_hand(variant, weights):
    assert route(called(), DIMENSIONS, **variant)[0] == pytest.approx(weights)


def test_softmax_does_not_overflow_and_sums_to_one_over_all_experts():
    plain = replace(DIMENSIONS, norm_topk=False, experts_used=4, routed_scale=1.0)
    call = called(logits=((1000.0, 999.0, 0.0, 0.0), (0.0, 1.0, -999.0, -999.0)))
    first, second = route(call, plain, softmax=True)
    assert first == pytest.approx([1 / (1 + np.exp(-1)), 1 / (1 + np.e), 0, 0])
    assert second == pytest.approx([1 / (1 + np.e), 1 / (1 + np.exp(-1)), 0, 0])


def test_of_equal_experts_the_first_are_used():
    many = replace(DIMENSIONS, experts=256, experts_used=3)
    call = called(many, logits=((0.0,) * 256, (0.0, 1.0) * 128), bias=(0.0,) * 256)
    first, second = route(call, many)
    assert np.flatnonzero(first).tolist() == [0, 1, 2]
    assert np.flatnonzero(second).tolist() == [1, 3, 5]


def test_scores_that_are_not_made_to_sum_to_one():
    plain = replace(DIMENSIONS, norm_topk=False)
    assert route(called(), plain)[0] == pytest.approx(np.array([SIGMOID_2, 0, SIGMOID_0, 0]) * 2.5)


GROUPED = replace(DIMENSIONS, experts=6, groups=2, groups_used=1, routed_scale=1.0, norm_topk=False)


def test_the_group_with_the_best_two_experts_together_is_used():
    """The largest score of all is in the first group, the two best together are in the second."""
    call = called(GROUPED, logits=((3.0, -3.0, -3.0, 2.0, 2.0, -9.0),), bias=(0.0,) * 6)
    assert np.flatnonzero(route(call, GROUPED)[0]).tolist() == [3, 4]
    third = called(GROUPED, logits=((2.0, 2.0, -9.0, 1.5, 1.5, 1.5),), bias=(0.0,) * 6)
    assert np.flatnonzero(route(third, GROUPED)[0]).tolist() == [0, 1]


def test_more_groups_used_let_more_experts_take_part():
    both = replace(GROUPED, groups_used=2)
    call = called(both, logits=((3.0, -3.0, -3.0, 2.0, 1.0, -9.0),), bias=(0.0,) * 6)
    assert np.flatnonzero(route(call, both)[0]).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("installation", "name"), [(FLOAT, "ROUTER_WEIGHT_FLOAT32"), (REDUCED, "ROUTER_WEIGHT_REDUCED")]
)
def test_a_weight_may_be_off_by_its_share_of_the_scale(installation, name, monkeypatch):
    right, wrong = called(logits=LOGITS[:1]), scaled(1.125, called(logits=LOGITS[:1]))
    off = max(abs(a - b) for a, b in zip(right.weights[0], wrong.weights[0], strict=True))
    assert off / 2.5 * 2.5 == off
    for share, outcome in ((off / 2.5, "passed"), (off / 2.5 * (1 - 1e-12), "failed")):
        monkeypatch.setattr(tolerances, name, share)
        assert routed(wrong, installation=installation)()[1].outcome == outcome
