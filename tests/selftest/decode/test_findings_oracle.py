"""What the checks against an oracle or the server itself say, case by case; approved in findings_oracle.txt."""

import math
from dataclasses import replace

import numpy as np
import pytest

from glm5check import tolerances
from glm5check.checks import causes, decode
from glm5check.checks.causes import Installation
from glm5check.checks.decode.distributions import first_difference
from glm5check.checks.decode.layers import relative_error
from glm5check.checks.decode.likelihood import windows
from glm5check.records import Scores, TokenChoice
from tests.selftest.approved import approved, told
from tests.selftest.decode.records import HALVES, OTHER, SURE, answer, choice, failed, failed_scores, ids, scores

FLOAT = Installation(ranks=2, reduced=False)
REDUCED = Installation(ranks=2, reduced=True)
UNKNOWN = Installation(reduced=True)
NAN = replace(HALVES, top={0: math.nan, 1: -1.0})
STRANGE = TokenChoice(7, -0.1, {7: -0.1})
TIED = choice(0, 0.4, 0.35, 0.25)


def kl(got, want, installation=REDUCED, **more):
    return lambda: decode.mean_kl(got, want, installation, **more)


def greedy(got, want, installation=REDUCED):
    return lambda: decode.greedy_ids(got, want, installation)


def logprobs(got, want, installation=FLOAT):
    return lambda: decode.token_logprobs(got, want, installation)


def shifted(record, by, start=0, end=None):
    moved = (
        replace(token, logprob=token.logprob - by) if start <= at < (end or len(record.tokens)) else token
        for at, token in enumerate(record.tokens)
    )
    return replace(record, tokens=tuple(moved))


def rescored(generation, *again, name=None):
    """The scores of a generation's prompt and tokens: `again` for the tokens."""
    before = (TokenChoice(8, -1.0), TokenChoice(9, -1.0))
    return Scores(
        prompt=name or generation.prompt, prompt_ids=generation.prompt_ids + generation.ids, tokens=(*before, *again)
    )


RIGHT = [scores(HALVES, SURE, HALVES)]
A_HUNDRED = [scores(*[HALVES] * 100)]
TWO_WRONG = [scores(*[HALVES] * 40, SURE, *[HALVES] * 40, SURE, *[HALVES] * 18)]
THREE_WRONG = [scores(*[HALVES] * 40, SURE, SURE, *[HALVES] * 39, SURE, *[HALVES] * 18)]
PASSAGE = scores(*[HALVES] * 200)
SHORT = answer(HALVES, HALVES)

ORACLE = {
    "the server is the oracle": kl(RIGHT, RIGHT, FLOAT),
    "the server is the oracle in reduced precision": kl(RIGHT, RIGHT, UNKNOWN),
    "a middle position differs": kl([scores(HALVES, HALVES, HALVES)], RIGHT),
    "the first position alone differs": kl([scores(SURE, SURE, HALVES)], RIGHT),
    "everything differs and so did greedy answers": kl(
        [scores(SURE, HALVES)], [scores(HALVES, SURE)], greedy_is_right=False
    ),
    "a distribution is no number": kl([scores(HALVES, NAN)], [scores(HALVES, HALVES)]),
    "a distribution is no number in float32": kl([scores(NAN, HALVES)], [scores(HALVES, HALVES)], FLOAT),
    "two of a hundred positions are router flips": kl(TWO_WRONG, A_HUNDRED),
    "two of a hundred positions differ in float32": kl(TWO_WRONG, A_HUNDRED, FLOAT),
    "three of a hundred positions differ": kl(THREE_WRONG, A_HUNDRED),
    "the second prompt is the worst": kl(
        [scores(HALVES, name="a"), scores(SURE, HALVES, name="b")],
        [scores(HALVES, name="a"), scores(HALVES, SURE, name="b")],
    ),
    "one prompt failed and the other is right": kl([failed_scores(), *RIGHT], RIGHT),
    "every prompt failed": kl([failed_scores()], RIGHT),
    "the oracle failed": kl(RIGHT, [failed_scores("text")]),
    "no prompt is in common": kl([], []),
    "the answers are the oracle's": greedy([ids(1, 2, 3)], [ids(1, 2, 3)]),
    "an answer goes on": greedy([ids(1, 2, 3, 4)], [ids(1, 2, 3)]),
    "an answer was cut earlier": greedy([ids(1, 2)], [ids(1, 2, 3)]),
    "an answer ends earlier": greedy([ids(1, 2, finish="stop")], [ids(1, 2, 3)]),
    "a token is another one": greedy([answer(HALVES, OTHER)], [answer(HALVES, HALVES)]),
    "a token is another one at a near-tie": greedy([answer(HALVES, OTHER)], [answer(HALVES, TIED)]),
    "a near-tie is none in float32": greedy([answer(HALVES, OTHER)], [answer(HALVES, TIED)], FLOAT),
    "a request failed and the other answer differs": greedy(
        [failed(), answer(OTHER, name="b")], [answer(HALVES, name="b")], Installation(reduced=True)
    ),
    "no answer is in common": greedy([], [ids(1)]),
    "the logprobs are the oracle's": logprobs(RIGHT, RIGHT),
    "the largest difference counts in float32": logprobs([shifted(RIGHT[0], 0.25, 1, 2)], RIGHT),
    "the median counts in reduced precision": logprobs([shifted(RIGHT[0], 5.0, 1, 2)], RIGHT, REDUCED),
    "most logprobs differ in reduced precision": logprobs([shifted(RIGHT[0], 0.5, 1)], RIGHT, REDUCED),
    "improbable tokens are left out": logprobs(
        [scores(choice(1, 0.96, 0.04), HALVES)], [scores(choice(1, 0.99, 0.01), HALVES)]
    ),
    "a logprob is no number": logprobs([scores(HALVES, replace(HALVES, logprob=math.nan))], [scores(HALVES, HALVES)]),
    "only improbable tokens, and a likely one in the next": logprobs(
        [scores(choice(1, 0.99, 0.01), name="a"), scores(HALVES, name="b")],
        [scores(choice(1, 0.99, 0.01), name="a"), scores(HALVES, name="b")],
    ),
    "no likely token is in common": logprobs([failed_scores()], []),
    "a passage is as likely as to the oracle": lambda: decode.passage_nll([PASSAGE], [PASSAGE], REDUCED),
    "a passage is less likely": lambda: decode.passage_nll([shifted(PASSAGE, 0.5, 50, 100)], [PASSAGE], REDUCED),
    "a passage is likelier": lambda: decode.passage_nll([shifted(PASSAGE, -0.5, 50, 100)], [PASSAGE], REDUCED),
    "one logprob of a passage is no number": lambda: decode.passage_nll(
        [shifted(shifted(PASSAGE, math.nan, 3, 4), 0.5, 7, 8)], [PASSAGE], REDUCED
    ),
    "no logprob of a passage is a number": lambda: decode.passage_nll([shifted(PASSAGE, math.nan)], [PASSAGE], REDUCED),
    "no passage is in common": lambda: decode.passage_nll([failed_scores()], [PASSAGE], REDUCED),
    "no passage was scored": lambda: decode.passage_nll([], [PASSAGE], REDUCED),
    "both windows are right": lambda: decode.nll_by_window([PASSAGE], [PASSAGE], REDUCED),
    "the second window is wrong": lambda: decode.nll_by_window([shifted(PASSAGE, 0.5, 128)], [PASSAGE], REDUCED),
    "both windows are wrong": lambda: decode.nll_by_window([shifted(PASSAGE, 0.5)], [PASSAGE], REDUCED),
    "a window has no number": lambda: decode.nll_by_window([shifted(PASSAGE, math.nan, 0, 1)], [PASSAGE], REDUCED),
    "no window is in common": lambda: decode.nll_by_window([failed_scores()], [PASSAGE], REDUCED),
    "no windowed passage was scored": lambda: decode.nll_by_window([], [PASSAGE], REDUCED),
}

PLACES = dict.fromkeys(("embedding", "blk.0.attention", "blk.0.mlp", "norm"), (3.0, 4.0))


def twice(got, want, installation=REDUCED):
    return lambda: decode.same_generations("context.reuse", got, want, installation, cause="a stale page")


def scored_twice(got, want, installation=REDUCED):
    return lambda: decode.same_scores("context.reuse", got, want, installation, cause="a stale page")


def matched(generations, rescores, installation=REDUCED):
    return lambda: decode.decode_matches_prefill(generations, rescores, installation)


def agreed(got, first, second, installation=REDUCED):
    return lambda: decode.oracles_agree(got, {"transformers": first, "llama.cpp": second}, installation)


def hidden(installation=FLOAT, want=PLACES, **changes):
    got = want | {name.replace("_", "."): value for name, value in changes.items()}
    return lambda: decode.hidden_states("fox", got, want, installation)


ITSELF = {
    "decode matches prefill": matched([SHORT], [rescored(SHORT, HALVES, HALVES)]),
    "decode matches prefill in float32": matched([SHORT], [rescored(SHORT, HALVES, HALVES)], FLOAT),
    "decode differs from its first token": matched([SHORT], [rescored(SHORT, SURE, SURE)]),
    "decode differs from its second token": matched([SHORT], [rescored(SHORT, HALVES, SURE)], FLOAT),
    "decode differs from its third token": matched(
        [answer(HALVES, HALVES, HALVES)], [rescored(answer(HALVES, HALVES, HALVES), HALVES, HALVES, SURE)]
    ),
    "one position of many differs, within the mean": matched(
        [answer(*[HALVES] * 50)], [rescored(answer(*[HALVES] * 50), *[HALVES] * 20, SURE, *[HALVES] * 29)]
    ),
    "decode gives no numbers": matched([answer(NAN)], [rescored(answer(NAN), HALVES)]),
    "an answer failed, another was not scored, the third is right": matched(
        [failed(), answer(HALVES, name="b"), SHORT], [failed_scores("b"), rescored(SHORT, HALVES, HALVES)]
    ),
    "no answer was scored again": matched([], []),
    "two scorings are the same": scored_twice(RIGHT, RIGHT, FLOAT),
    "two scorings differ in the middle": scored_twice([scores(HALVES, HALVES, HALVES)], RIGHT),
    "a scoring has no numbers": scored_twice([scores(HALVES, NAN)], [scores(HALVES, HALVES)]),
    "both scorings failed": scored_twice([failed_scores("a")], [failed_scores("a")]),
    "no prompt was scored twice": scored_twice([], []),
    "two answers are the same": twice([SHORT], [SHORT], FLOAT),
    "two answers part where one is far likelier": twice([answer(HALVES, OTHER)], [SHORT]),
    "two answers part at a near-tie": twice([answer(HALVES, OTHER)], [answer(HALVES, TIED)]),
    "two answers part at the first token": twice([answer(OTHER, HALVES)], [SHORT]),
    "an answer stops where the other goes on": twice([answer(HALVES, finish="stop")], [SHORT]),
    "an answer is longer": twice([answer(HALVES, HALVES, HALVES)], [SHORT]),
    "two answers have other distributions": twice([answer(SURE, HALVES)], [SHORT]),
    "an answer has no numbers": twice([answer(HALVES, NAN)], [SHORT]),
    "both answers failed": twice([failed("a")], [failed("a")]),
    "no prompt was answered twice": twice([], []),
    "all three agree": agreed(RIGHT, RIGHT, RIGHT),
    "the server differs from both": agreed([scores(HALVES, HALVES, HALVES)], RIGHT, RIGHT),
    "the oracles differ and the server is one of them": agreed(RIGHT, RIGHT, [scores(HALVES, HALVES, HALVES)]),
    "the oracles differ on one prompt of two": agreed(
        [scores(HALVES, name="a"), scores(HALVES, name="b")],
        [scores(HALVES, name="a"), scores(HALVES, name="b")],
        [scores(SURE, name="a"), scores(HALVES, name="b")],
    ),
    "the oracles differ on one prompt of three": agreed(
        [scores(HALVES, name=name) for name in "abc"],
        [scores(HALVES, name=name) for name in "abc"],
        [scores(SURE, name="a"), scores(HALVES, name="b"), scores(HALVES, name="c")],
    ),
    "the server has no numbers": agreed([scores(NAN)], [scores(HALVES)], [scores(HALVES)]),
    "the second oracle failed on the first prompt": agreed(
        [scores(HALVES, name="a"), scores(HALVES, name="b")],
        [scores(HALVES, name="a"), scores(HALVES, name="b")],
        [failed_scores("a"), scores(HALVES, name="b")],
    ),
    "the server failed": agreed([failed_scores()], RIGHT, RIGHT),
    "nothing was scored by all three": agreed([], RIGHT, RIGHT),
    "every place is the oracle's": hidden(),
    "an MLP differs first": hidden(blk_0_mlp=(3.0, 4.5), norm=(9.0, 9.0)),
    "an attention differs": hidden(Installation(reduced=False), blk_0_attention=(3.0, 5.0)),
    "the embedding differs": hidden(embedding=(0.0, 0.0)),
    "the norm has no numbers": hidden(norm=(math.nan, 4.0)),
    "reduced precision rounds": hidden(REDUCED, blk_0_mlp=(3.0, 4.5), norm=(3.0, 4.1)),
    "reduced precision differs": hidden(REDUCED, blk_0_mlp=(3.0, 5.0)),
    "no place was watched": lambda: decode.hidden_states("fox", {}, PLACES, FLOAT),
}
CASES = ORACLE | ITSELF


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]


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
