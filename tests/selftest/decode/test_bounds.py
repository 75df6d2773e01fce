"""Borders of the checks against an oracle: values at their bounds, places, causes, and divergences by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from glm5check import tolerances
from glm5check.checks import causes, decode
from glm5check.checks.causes import Installation
from glm5check.checks.decode.distributions import first_difference
from glm5check.checks.decode.judging import judged
from glm5check.checks.decode.layers import relative_error
from glm5check.checks.decode.likelihood import nll, windows
from glm5check.records import TokenChoice
from tests.selftest.decode.records import (
    FLOAT,
    HALVES,
    NAN,
    OTHER,
    REDUCED,
    SURE,
    TIED,
    agreed,
    answer,
    choice,
    hidden,
    ids,
    logprobs,
    matched,
    rescored,
    scored_twice,
    scores,
    shifted,
    twice,
)

ALL = {i: math.log(1 / 512) for i in range(256)}


@pytest.mark.parametrize(
    ("want", "got", "nats"),
    [
        ({0: 0.5, 1: 0.5}, {0: 0.25, 1: 0.75}, 0.5 * math.log(2) + 0.5 * math.log(2 / 3)),
        ({0: 0.5}, {0: 0.25}, 0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75)),
        ({0: 0.5, 1: 0.25}, {0: 0.5, 2: 0.25}, 0.0),
        ({0: 0.5, 1: 0.5}, {0: 1.0, 2: 1e-12}, 0.5 * math.log(0.5) + 0.5 * math.log(0.5 / 1e-9)),
        ({0: 1.0}, {0: 0.5}, math.log(2)),
        ({0: 0.5}, {1: 0.5}, math.nan),
    ],
)
def test_divergence_by_hand(want, got, nats):
    """Over what both list, with the rest as one bucket; a bucket that the server leaves empty counts as 1e-9."""
    a, b = (TokenChoice(0, 0.0, {i: math.log(p) for i, p in top.items()}) for top in (want, got))
    assert decode.kl_divergence(a, b) == pytest.approx(nats, nan_ok=True)


def test_a_rest_of_both_beyond_256_common_tokens_is_rounding():
    whole = TokenChoice(0, 0.0, ALL)
    fewer = TokenChoice(0, 0.0, {i: ALL[i] - 0.5 for i in range(255)})
    halved = TokenChoice(0, 0.0, {i: value - 0.5 for i, value in ALL.items()})
    more = TokenChoice(0, 0.0, halved.top | {256: -1.0})
    rest = 1 - 0.5 * math.exp(-0.5)
    assert decode.kl_divergence(whole, halved) == pytest.approx(0.25)
    for wider in (more, replace(more, top=more.top | {257: -1.0})):
        assert decode.kl_divergence(whole, wider) == pytest.approx(0.25 + 0.5 * math.log(0.5 / rest))
        assert decode.kl_divergence(wider, whole) != pytest.approx(-0.25 * math.exp(-0.5))
    assert decode.kl_divergence(whole, fewer) > 0.25 * 255 / 256 - 0.2


@pytest.mark.parametrize(("above", "is_none"), [(1e-3, False), (2e-3, True), (1000.0, True)])
def test_a_logprob_above_zero_makes_no_divergence_beyond_rounding(above, is_none):
    odd = replace(HALVES, top={0: above, 1: -1.0})
    assert math.isnan(decode.kl_divergence(odd, HALVES)) is is_none
    assert math.isnan(decode.kl_divergence(HALVES, odd)) is is_none


def test_an_infinite_logprob_makes_no_divergence():
    assert math.isnan(decode.kl_divergence(replace(HALVES, top={0: -math.inf, 1: -0.1}), HALVES))
    assert math.isnan(decode.kl_divergence(HALVES, replace(HALVES, top={0: -math.inf, 1: -0.1})))


def values(findings):
    return [finding.value for finding in findings]


NEARLY = scores(choice(0, 0.52, 0.24, 0.24), HALVES, HALVES)
PLAIN = scores(HALVES, HALVES, HALVES)
SAID, THOUGHT = answer(*NEARLY.tokens), answer(*PLAIN.tokens)
BOUNDS = {
    "MEAN_KL_REDUCED mean_kl": lambda: decode.mean_kl([NEARLY], [PLAIN], REDUCED),
    "MEAN_KL_FLOAT32 mean_kl": lambda: decode.mean_kl([NEARLY], [PLAIN], FLOAT),
    "MEAN_KL_REDUCED same_scores": scored_twice([NEARLY], [PLAIN]),
    "MEAN_KL_FLOAT32 same_scores": scored_twice([NEARLY], [PLAIN], FLOAT),
    "MEAN_KL_REDUCED same_generations": twice([SAID], [THOUGHT]),
    "MEAN_KL_FLOAT32 same_generations": twice([SAID], [THOUGHT], FLOAT),
    "MEAN_KL_REDUCED decode_matches_prefill": matched([SAID], [rescored(SAID, *PLAIN.tokens)]),
    "MEAN_KL_FLOAT32 decode_matches_prefill": matched([SAID], [rescored(SAID, *PLAIN.tokens)], FLOAT),
    "LOGPROB_FLOAT32 token_logprobs": logprobs([shifted(PLAIN, 0.125)], [PLAIN]),
    "LOGPROB_REDUCED token_logprobs": logprobs([shifted(PLAIN, 0.125)], [PLAIN], REDUCED),
    "ORACLES_KL oracles_agree": agreed([NEARLY], [PLAIN], [PLAIN]),
    "HIDDEN_FLOAT32 hidden_states": hidden(blk_0_mlp=(3.0, 4.25)),
    "HIDDEN_REDUCED hidden_states": hidden(REDUCED, blk_0_mlp=(3.0, 4.25)),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_value_at_its_bound_is_right_and_one_above_it_is_not(bound, monkeypatch):
    (finding,) = BOUNDS[bound]()
    name = bound.split()[0]
    monkeypatch.setattr(tolerances, name, finding.value)
    assert BOUNDS[bound]()[0].outcome == "passed"
    monkeypatch.setattr(tolerances, name, math.nextafter(finding.value, 0))
    assert BOUNDS[bound]()[0].outcome == "failed"


TWENTY = answer(*[HALVES] * 20)
ONE_OFF = rescored(TWENTY, SURE, *[HALVES] * 19)
"""The first of twenty positions is off by 0.13 nat, so the mean is a twentieth of that."""


def test_the_place_where_decode_parts_is_told_of_failures_only(monkeypatch):
    monkeypatch.setattr(tolerances, "ROUTER_FLIPS", 0.0)
    mean = matched([TWENTY], [ONE_OFF])()[0].value
    monkeypatch.setattr(tolerances, "MEAN_KL_REDUCED", mean)
    assert "position" not in matched([TWENTY], [ONE_OFF])()[0].where
    monkeypatch.setattr(tolerances, "MEAN_KL_REDUCED", math.nextafter(mean, 0))
    assert matched([TWENTY], [ONE_OFF])()[0].where["position"] == "3 (token 1 of 20)"


def test_a_position_counts_as_the_place_beyond_its_multiple_of_the_bound(monkeypatch):
    monkeypatch.setattr(tolerances, "ROUTER_FLIPS", 0.0)
    value = decode.kl_divergence(SURE, HALVES)
    monkeypatch.setattr(tolerances, "MEAN_KL_REDUCED", 2.0**-10)
    for times, told_of in ((value * 2**10, False), (math.nextafter(value * 2**10, 0), True)):
        monkeypatch.setattr(tolerances, "KL_OF_ONE_POSITION", times)
        (finding,) = matched([TWENTY], [ONE_OFF])()
        assert finding.outcome == "failed"
        assert ("position" in finding.where) is told_of


@pytest.mark.parametrize(
    "check",
    [
        lambda: decode.mean_kl([scores(HALVES)], [scores(HALVES, HALVES)], REDUCED),
        scored_twice([scores(HALVES)], [scores(HALVES, HALVES)]),
        lambda: decode.passage_nll([scores(HALVES)], [scores(HALVES, HALVES)], REDUCED),
        matched([TWENTY], [rescored(TWENTY, HALVES)]),
        logprobs([scores(HALVES)], [scores(HALVES, HALVES)]),
    ],
)
def test_scores_of_other_lengths_are_of_other_texts(check):
    with pytest.raises(ValueError, match="zip"):
        check()


def test_the_likelihood_of_nothing_is_no_number():
    assert math.isnan(nll(()))


def test_a_first_window_at_its_gate_is_right(monkeypatch):
    passage = scores(*[HALVES] * 200)
    worse = shifted(shifted(passage, 0.125, 0, 128), 0.5, 128)
    first = decode.nll_by_window([worse], [passage], REDUCED)[0].value
    for gate, cause in ((first, "the error grows with position"), (math.nextafter(first, 0), "merged layers")):
        monkeypatch.setattr(tolerances, "NLL_GATE", gate)
        assert decode.nll_by_window([worse], [passage], REDUCED)[1].cause.startswith(cause)


def test_a_failure_without_a_known_cause_names_none():
    assert judged("x.y", False, got="a", want="b", where={}).cause == ""


@pytest.mark.parametrize("check", [decode.passage_nll, decode.nll_by_window])
@pytest.mark.parametrize("by", [0.125, -0.125])
def test_a_likelihood_at_its_gate_is_right_on_both_sides(check, by, monkeypatch):
    passage, moved = scores(HALVES), shifted(scores(HALVES), by)
    monkeypatch.setattr(tolerances, "NLL_GATE", abs(check([moved], [passage], REDUCED)[0].value))
    assert check([moved], [passage], REDUCED)[0].outcome == "passed"
    monkeypatch.setattr(tolerances, "NLL_GATE", math.nextafter(tolerances.NLL_GATE, 0))
    assert check([moved], [passage], REDUCED)[0].outcome == "failed"


@pytest.mark.parametrize(("length", "last"), [(191, (0, 191)), (192, (128, 192)), (193, (128, 193))])
def test_a_rest_of_64_tokens_is_a_window(length, last):
    assert windows(length)[-1] == last


@pytest.mark.parametrize(("reduced", "name"), [(True, "NEAR_TIE_REDUCED"), (False, "NEAR_TIE_FLOAT32")])
def test_a_margin_as_wide_as_a_near_tie_is_none(reduced, name, monkeypatch):
    installation = Installation(ranks=2, reduced=reduced)
    monkeypatch.setattr(tolerances, name, TIED.margin)
    for check in (
        lambda: decode.greedy_ids([answer(OTHER)], [answer(TIED)], installation),
        twice([answer(OTHER)], [answer(TIED)], installation),
    ):
        monkeypatch.setattr(tolerances, name, TIED.margin)
        assert check()[0].outcome == "failed"
        monkeypatch.setattr(tolerances, name, math.nextafter(TIED.margin, 1))
        assert check()[0].outcome == "passed"


@pytest.mark.parametrize(
    ("ours", "theirs", "at"),
    [
        (ids(1, 2), ids(1, 2), None),
        (ids(1, 2, finish="stop"), ids(1, 2), None),
        (ids(1, 2, finish="stop"), ids(1, 2, 3), 2),
        (ids(1, 2), ids(1, 2, 3), None),
        (ids(1, 2, 3, finish="stop"), ids(1, 2), None),
        (ids(4, 2), ids(1, 2), 0),
        (ids(1, 4, finish="stop"), ids(1, 2, 3), 1),
    ],
)
def test_where_two_answers_part(ours, theirs, at):
    assert first_difference(ours, theirs) == at


def test_a_relative_error_by_hand():
    """Of small and of vanishing vectors, and of halves, whose difference is beyond a half."""
    assert relative_error((0.75, 0.0), (0.5, 0.0)) == 0.5
    assert relative_error((1e-3,), (0.0,)) > 1e20
    largest = np.array([60_000.0], np.float16)
    assert relative_error(largest, -largest) == 2.0


def test_oracles_agree_up_to_their_bound(monkeypatch):
    (finding,) = decode.oracles_agree([PLAIN], {"a": [PLAIN], "b": [NEARLY]}, REDUCED)
    monkeypatch.setattr(tolerances, "ORACLES_KL", finding.value)
    assert [one.prompt for one in decode.agreed_scores([NEARLY], [PLAIN])] == ["text"]
    monkeypatch.setattr(tolerances, "ORACLES_KL", finding.value / 2)
    assert decode.agreed_scores([NEARLY], [PLAIN]) == []
    assert decode.agreed_scores([scores()], [scores()]) == []
    between = decode.same_scores("x", [NEARLY], [PLAIN], REDUCED, cause="")[0].value
    for bound, disputed in ((between, False), (math.nextafter(between, 0), True)):
        monkeypatch.setattr(tolerances, "ORACLES_KL", bound)
        (finding,) = decode.oracles_agree([PLAIN], {"a": [PLAIN], "b": [NEARLY]}, REDUCED)
        assert (finding.outcome == "inconclusive") is disputed
    with pytest.raises(ValueError, match="zip"):
        decode.agreed_scores([scores(HALVES, HALVES)], [scores(HALVES)])
    assert decode.agreed_scores([scores(NAN)], [scores(HALVES)]) == []


KNOWN = (("merged_rank", "rows of rank 0"), ("cpu_rotary", "positions"))


@pytest.mark.parametrize(
    ("kl", "greedy_is_right", "first", "installation", "cause"),
    [
        (0.1, True, False, REDUCED, causes.MERGED_RANK + " (run tests/sharding to see which layer and rank)"),
        (0.1, True, True, REDUCED, causes.ATTENTION_SCORES),
        (0.1, True, False, Installation(ranks=2, open_faults=KNOWN), "rows of rank 0; and positions"),
        (0.1, True, False, Installation(ranks=2, open_faults=KNOWN[:1]), "rows of rank 0"),
        (0.1, True, False, Installation(ranks=1, open_faults=KNOWN[:1]), "rows of rank 0"),
        (0.1, True, True, Installation(open_faults=KNOWN[1:]), "positions"),
        (0.1, True, False, Installation(ranks=1), "some layers compute with other weights or scales than the file's: "),
        (0.1, True, False, Installation(), "some layers compute with other weights or scales than the file's: "),
        (0.1, False, False, REDUCED, "some layers compute with other weights or scales than the file's: "),
        (1.0, True, False, REDUCED, "positions or attention: wrong rotary kernel, attention backend or rope base "),
        (9.0, False, False, Installation(), "positions or attention: wrong rotary kernel, attention backend or rope "),
    ],
)
def test_the_one_likely_cause(kl, greedy_is_right, first, installation, cause):
    said = causes.of_wrong_distribution(kl, greedy_is_right, installation, first_is_right=first)
    assert said.startswith(cause)
    assert said.removeprefix(cause) in (
        "",
        "(compare with --enforce-eager)",
        "base (compare with --enforce-eager)",
        "run tests/sharding and tests/checkpoint",
    )


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("HTTP 400: Out of range float values", "NaN or infinity in the logits"),
        ("got NaN in it", "NaN or infinity in the logits"),
        ("it sings in banana", "the server's log says more"),
        ("no JSON object", "NaN or infinity in the logits"),
        ("No answer In Time", "a worker hangs"),
        ("it timed out", "a worker hangs"),
        ("EngineDeadError", "the engine died"),
        ("it cannot be reached", "the engine died"),
        ("HTTP 500", "the engine died"),
        ("HTTP 404", "the server's log says more"),
    ],
)
def test_the_cause_of_an_error(error, cause):
    assert causes.of_error(error).startswith(cause)
