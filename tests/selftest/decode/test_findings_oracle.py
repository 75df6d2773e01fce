"""What the checks against an oracle or the server itself say, case by case; approved in findings_oracle.txt."""

import math
from dataclasses import replace

import pytest

from glm5check.checks import decode
from glm5check.checks.causes import Installation
from glm5check.records import TokenChoice
from tests.selftest.approved import approved, told
from tests.selftest.decode.records import (
    FLOAT,
    HALVES,
    NAN,
    OTHER,
    PLACES,
    REDUCED,
    SURE,
    TIED,
    agreed,
    answer,
    choice,
    failed,
    failed_scores,
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

UNKNOWN = Installation(reduced=True)
STRANGE = TokenChoice(7, -0.1, {7: -0.1})


def kl(got, want, installation=REDUCED, **more):
    return lambda: decode.mean_kl(got, want, installation, **more)


def greedy(got, want, installation=REDUCED):
    return lambda: decode.greedy_ids(got, want, installation)


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
    "the server is further from one oracle than they are from each other": agreed(
        [scores(choice(0, 0.45, 0.55))], [scores(choice(0, 0.5, 0.5))], [scores(choice(0, 0.585, 0.415))]
    ),
    "the oracles differ on both prompts": agreed(
        [scores(HALVES, name="a"), scores(HALVES, name="b")],
        [scores(HALVES, name="a"), scores(HALVES, name="b")],
        [scores(SURE, name="a"), scores(SURE, name="b")],
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
