"""Router and attention checks on calls that were made rightly and wrongly, layers that part, oracles that disagree."""

from dataclasses import replace

import numpy as np
import pytest

from fixtures import DATA
from glm5check.checks import decode
from glm5check.checks.decode.whitebox import route
from glm5check.glm5.dimensions import Dimensions, read_hf_config
from glm5check.records import AttentionWrites, Outcome, RouterCall


@pytest.fixture(scope="module")
def dimensions():
    return Dimensions.from_hf(read_hf_config(DATA / "tiny-glm5"))


@pytest.fixture(scope="module")
def call(dimensions):
    """`call(softmax=True)`: a router call whose weights were made by that variant."""

    def make(**variant):
        generator = np.random.default_rng(3)
        logits = generator.normal(0, 1, (20, dimensions.experts))
        bias = generator.normal(0, 0.3, dimensions.experts).astype(np.float32)
        empty = RouterCall(
            layer="blk.1",
            rank=0,
            bias=tuple(bias.tolist()),
            bias_dtype="float32",
            logits=tuple(map(tuple, logits.tolist())),
            expert_ids=(),
            weights=(),
            output_scale=dimensions.routed_scale,
        )
        dense = route(empty, dimensions, **variant)
        used = np.argsort(-dense, axis=1)[:, : dimensions.experts_used]
        weights = np.take_along_axis(dense, used, axis=1) / dimensions.routed_scale
        return replace(empty, expert_ids=tuple(map(tuple, used.tolist())), weights=tuple(map(tuple, weights.tolist())))

    return make


@pytest.mark.parametrize(
    ("variant", "cause"),
    [
        ({"softmax": True}, "softmax instead of sigmoid"),
        ({"in_weights": True}, "kept in the weights"),
        ({"unscaled": True}, "not applied"),
        ({"twice": True}, "applied twice"),
    ],
)
def test_router_variants_are_named(variant, cause, call, dimensions, installation, reduced, failed):
    biases = {"blk.1": call().bias}
    assert failed(decode.router_weights([call()], dimensions, biases, installation)) == []
    for which in (installation, reduced):
        (finding,) = failed(decode.router_weights([call(**variant)], dimensions, biases, which))
        assert cause in finding.cause
        assert finding.where == {"layer": "blk.1", "rank": "0"}


def test_a_router_that_divides_zero_by_zero_is_named(call, dimensions, reduced, failed):
    spoiled = list(call().weights)
    spoiled[3] = (float("nan"),) * dimensions.experts_used
    (finding,) = failed(
        decode.router_weights([replace(call(), weights=tuple(spoiled))], dimensions, {"blk.1": call().bias}, reduced)
    )
    assert "0 by 0" in finding.cause


def test_a_narrow_bias_is_seen_by_type_and_by_distinct_values(call, dimensions, installation, failed):
    stored = tuple(7.0 + 0.001 * i for i in range(dimensions.experts))
    narrow = tuple(7.0 for _ in stored)
    (finding,) = failed(
        decode.router_weights([replace(call(), bias=narrow, logits=())], dimensions, {"blk.1": stored}, installation)
    )
    assert "narrower type" in finding.cause
    wrong_type = replace(call(), bias=stored, bias_dtype="bfloat16", logits=())
    assert failed(decode.router_weights([wrong_type], dimensions, {"blk.1": stored}, installation))


def test_an_unknown_bias_is_inconclusive(call, dimensions, installation):
    findings = decode.router_weights([replace(call(), logits=())], dimensions, {}, installation)
    assert [finding.outcome for finding in findings] == [Outcome.INCONCLUSIVE]


def test_expert_groups_limit_the_choice(call, dimensions):
    grouped = replace(dimensions, groups=2, groups_used=1)
    dense = route(call(), grouped)
    halves = dense.reshape(len(dense), 2, -1).sum(axis=2) > 0
    assert (halves.sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("changes", "cause"),
    [({"unwritten": 3}, "leaves rows"), ({"other_tensor": 2}, "returns another")],
)
def test_attention_outputs_can_fail(changes, cause, failed):
    healthy = AttentionWrites(layer="blk.0", rank=1, calls=2, rows=9, unwritten=0, other_tensor=0)
    assert failed(decode.attention_outputs([healthy], 2)) == []
    (finding,) = failed(decode.attention_outputs([healthy, replace(healthy, layer="blk.2", **changes)], 2))
    assert finding.where["layer"] == "blk.2"
    assert cause in finding.cause


@pytest.mark.parametrize("calls", [0, 5])
def test_a_layer_that_was_not_seen_in_every_step_is_inconclusive(calls):
    seen = AttentionWrites(layer="blk.0", rank=0, calls=calls, rows=calls, unwritten=0, other_tensor=0)
    (finding,) = decode.attention_outputs([seen], 6)
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert f"in {calls} of 6 steps" in finding.got
    assert "--enforce-eager" in finding.got


def test_a_row_left_unwritten_fails_however_few_steps_were_seen(failed):
    seen = AttentionWrites(layer="blk.0", rank=0, calls=1, rows=4, unwritten=1, other_tensor=0)
    assert failed(decode.attention_outputs([seen], 6))


def test_the_first_place_that_differs_is_named(installation, failed):
    want = dict.fromkeys(("embedding", "blk.0.attention", "blk.0.mlp", "norm"), (1.0, 2.0, 3.0))
    assert failed(decode.hidden_states("x", want, want, installation)) == []
    got = want | {"blk.0.mlp": (1.0, 2.0, 3.1), "norm": (9.0, 9.0, 9.0)}
    (finding,) = failed(decode.hidden_states("x", got, want, installation))
    assert "in blk.0.mlp, the first" in finding.got
    assert "MLP" in finding.cause
    assert failed(decode.hidden_states("x", want | {"norm": (float("nan"),) * 3}, want, installation))


def test_oracles_that_disagree_judge_nobody(scores, reduced, failed):
    first = [scores("a"), scores("b", seed=9), scores("c", seed=17)]
    disputed = [scores("a"), scores("b", seed=9, noise=1.0), scores("c", seed=17)]
    oracles = {"one": first, "two": disputed}
    assert [item.prompt for item in decode.agreed_scores(first, disputed)] == ["a", "c"]
    findings = decode.oracles_agree(disputed, oracles, reduced)
    assert failed(findings) == []
    assert [finding.where["prompt"] for finding in findings] == ["a", "c"]
    wrong = [scores("a", noise=1.0), *first[1:]]
    (finding,) = failed(decode.oracles_agree(wrong, oracles, reduced))
    assert finding.where["prompt"] == "a"
    nobody = decode.oracles_agree(first, {"one": first, "two": [scores("a", noise=1.0)]}, reduced)
    assert [finding.outcome for finding in nobody] == [Outcome.INCONCLUSIVE]
