"""Each signal stays silent on healthy records and names what is wrong with faulty ones."""

import math
from dataclasses import replace

import pytest

from glm5check.checks import decode
from glm5check.checks.decode.likelihood import windows
from glm5check.records import Generation, Outcome, Scores, TokenChoice


def test_finite_logprobs_names_the_prompt_and_the_position(scores, with_nan, failed):
    assert failed(decode.finite_logprobs([scores("a"), scores("b")])) == []
    (finding,) = failed(decode.finite_logprobs([scores("a"), with_nan(scores("b"), 5)]))
    assert finding.where["prompt"] == "b"
    assert finding.where["position"].startswith("6 ")
    assert "nan" in finding.got
    assert "NaN" in finding.cause


def test_finite_logprobs_sees_nan_among_alternatives_and_numbers_above_zero(scores, failed):
    healthy = scores()
    top = dict(healthy.tokens[3].top) | {7: math.nan}
    spoiled = (*healthy.tokens[:3], replace(healthy.tokens[3], top=top), *healthy.tokens[4:])
    assert failed(decode.finite_logprobs([replace(healthy, tokens=spoiled)]))
    above = (replace(healthy.tokens[0], logprob=0.5), *healthy.tokens[1:])
    assert failed(decode.finite_logprobs([replace(healthy, tokens=above)]))


def test_a_banned_alternative_is_no_nan(scores, failed):
    healthy = scores()
    banned = replace(healthy.tokens[0], top=dict(healthy.tokens[0].top) | {9: -math.inf})
    assert failed(decode.finite_logprobs([replace(healthy, tokens=(banned, *healthy.tokens[1:]))])) == []


def test_a_missing_answer_and_a_missing_logprob_fail(generation, failed):
    (finding,) = failed(decode.finite_logprobs([Generation(prompt="x", error="HTTP 400: Out of range float values")]))
    assert "NaN" in finding.cause
    assert failed(decode.finite_logprobs([generation(tokens=())]))


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("the server did not answer in time", "hangs"),
        ("HTTP 500: EngineDeadError", "died"),
        ("the server's answer is no JSON object", "NaN"),
    ],
)
def test_failed_requests_name_their_cause(error, cause):
    (finding,) = decode.token_runs([Generation(prompt="x", error=error)])
    assert finding.outcome is Outcome.FAILED
    assert cause in finding.cause


@pytest.mark.parametrize(
    ("ids", "finish", "wrong"),
    [
        ([5] * 16, "length", True),
        ([5] * 15, "length", False),
        ([5] * 40, "stop", False),
        ([5] * 20 + [6], "length", False),
        ([3] + [0] * 8 + [4], "stop", True),
        ([3] + [0] * 7 + [4], "stop", False),
    ],
)
def test_token_runs_counts_at_the_end_and_zeros_anywhere(ids, finish, wrong, failed):
    answer = Generation(prompt="x", tokens=tuple(TokenChoice(i, -0.1) for i in ids), finish_reason=finish)
    findings = failed(decode.token_runs([answer]))
    assert bool(findings) == wrong
    if wrong and 0 in ids:
        assert "NaN logits" in findings[0].cause


def test_mean_kl_fails_on_noise_and_names_the_worst_position(scores, installation, reduced, failed):
    want = [scores("a"), scores("b", seed=4)]
    assert failed(decode.mean_kl(want, want, installation)) == []
    noisy = [scores("a"), scores("b", seed=4, noise=0.3)]
    for which in (installation, reduced):
        (finding,) = failed(decode.mean_kl(noisy, want, which))
        assert "b position" in finding.where["worst"]
    slightly = [scores("a", noise=0.02), scores("b", seed=4, noise=0.02)]
    assert failed(decode.mean_kl(slightly, want, reduced)) == []
    assert failed(decode.mean_kl(slightly, want, installation))


def test_a_router_flip_is_forgiven_in_reduced_precision_only(scores, installation, reduced, failed):
    want = [scores("a", length=100)]
    wild = scores("a", length=100, noise=3.0).tokens[50]
    flipped = [replace(want[0], tokens=(*want[0].tokens[:50], wild, *want[0].tokens[51:]))]
    assert failed(decode.mean_kl(flipped, want, reduced)) == []
    assert failed(decode.mean_kl(flipped, want, installation))


def test_a_right_first_position_points_at_attention_scores(scores, reduced):
    want = scores("a")
    wrong = scores("a", noise=1.0)
    got = replace(want, tokens=(want.tokens[0], *wrong.tokens[1:]))
    assert "attention scores" in decode.mean_kl([got], [want], reduced)[0].cause
    assert "attention scores" not in decode.mean_kl([wrong], [want], reduced)[0].cause


def test_mean_kl_of_nan_is_no_pass(scores, installation, with_nan, failed):
    spoiled = scores("a")
    top = dict(spoiled.tokens[2].top) | {3: math.nan}
    tokens = (*spoiled.tokens[:2], replace(spoiled.tokens[2], top=top), *spoiled.tokens[3:])
    assert failed(decode.mean_kl([replace(spoiled, tokens=tokens)], [scores("a")], installation))


def test_mean_kl_on_the_best_tokens_alone_still_sees_noise(scores, reduced, failed):
    def best(record, count=10):
        tokens = tuple(
            replace(choice, top=dict(sorted(choice.top.items(), key=lambda item: -item[1])[:count]))
            for choice in record.tokens
        )
        return replace(record, tokens=tokens)

    want = [scores("a")]
    assert failed(decode.mean_kl([best(scores("a"))], want, reduced)) == []
    assert failed(decode.mean_kl([best(scores("a", noise=0.5))], want, reduced))


def test_greedy_ids_forgive_a_near_tie_only(generation, installation, failed):
    want = generation()
    assert failed(decode.greedy_ids([want], [want], installation)) == []
    second = sorted(want.tokens[7].top, key=want.tokens[7].top.get)[-2]
    other = (*want.tokens[:7], replace(want.tokens[7], token_id=second), *want.tokens[8:])
    (finding,) = failed(decode.greedy_ids([replace(want, tokens=other)], [want], installation))
    assert finding.where["position"] == "11 (token 8 of 40)"
    assert "likelier by" in finding.want
    tied_top = dict(want.tokens[7].top) | {second: max(want.tokens[7].top.values()) - 1e-5}
    tied = (*want.tokens[:7], replace(want.tokens[7], top=tied_top), *want.tokens[8:])
    assert failed(decode.greedy_ids([replace(want, tokens=other)], [replace(want, tokens=tied)], installation)) == []


def test_an_answer_that_ends_early_differs(generation, installation, failed):
    want = generation()
    early = replace(want, tokens=want.tokens[:9], finish_reason="stop")
    assert failed(decode.greedy_ids([early], [want], installation))


def test_token_logprobs_fail_on_noise(generation, installation, reduced, failed):
    def likely(noise):
        chosen = generation().ids
        tokens = tuple(
            replace(choice, token_id=token, logprob=choice.top[token])
            for choice, token in zip(generation(noise=noise).tokens, chosen, strict=True)
        )
        return [Scores(prompt="text", prompt_ids=(0, *chosen), tokens=tokens)]

    want = likely(0.0)
    assert failed(decode.token_logprobs(want, want, installation)) == []
    assert failed(decode.token_logprobs(likely(0.05), want, installation))
    assert failed(decode.token_logprobs(likely(2.0), want, reduced))


def test_passages_fail_by_a_twentieth_of_a_nat_in_both_directions(scores, reduced, failed):
    want = scores(length=300)
    for shift, wrong in ((0.04, False), (0.06, True), (-0.06, True)):
        tokens = tuple(replace(choice, logprob=choice.logprob - shift) for choice in want.tokens)
        assert bool(failed(decode.passage_nll([replace(want, tokens=tokens)], [want], reduced))) == wrong


def test_windows_find_where_a_fault_begins(scores, reduced, failed):
    want = scores(length=600)
    tokens = tuple(
        replace(choice, logprob=choice.logprob - (0.2 if at >= 256 else 0.0)) for at, choice in enumerate(want.tokens)
    )
    findings = failed(decode.nll_by_window([replace(want, tokens=tokens)], [want], reduced))
    assert [finding.where["positions"] for finding in findings] == ["257..512", "513..600"]
    assert all("grows with position" in finding.cause for finding in findings)


def test_windows_join_a_short_rest():
    assert windows(150) == [(0, 150)]
    assert windows(300) == [(0, 128), (128, 300)]
    assert windows(20) == [(0, 20)]


def rescored(generation, after=None, noise=0.0):
    """The generation's own distributions as scores of prompt and answer, wrong from token `after` on."""
    filler = tuple(TokenChoice(token, -1.0) for token in generation.prompt_ids[1:])
    tokens = tuple(
        replace(choice, top={k: v * (1.3 if after is not None and at >= after else 1.0) for k, v in choice.top.items()})
        for at, choice in enumerate(generation.tokens)
    )
    return Scores(
        prompt=generation.prompt, prompt_ids=generation.prompt_ids + generation.ids, tokens=(*filler, *tokens)
    )


@pytest.mark.parametrize(("after", "cause"), [(0, "from the start"), (12, "stale")])
def test_decode_against_prefill_says_where_they_part(after, cause, generation, reduced, failed):
    answer = generation()
    assert failed(decode.decode_matches_prefill([answer], [rescored(answer)], reduced)) == []
    (finding,) = failed(decode.decode_matches_prefill([answer], [rescored(answer, after)], reduced))
    assert f"(token {after + 1} of 40)" in finding.where["position"]
    assert ("another function" in finding.cause) == (cause == "from the start")


def test_two_answers_to_one_prompt_are_each_held_to_their_own_text(generation, reduced, failed):
    """Slots of a batch may part at a near-tie, and both be right."""
    one = generation()
    tokens = (*one.tokens[:-1], replace(one.tokens[-1], token_id=one.ids[-1] + 1, top={one.ids[-1] + 1: -0.1}))
    other = replace(one, tokens=tokens)
    scored = [rescored(one), rescored(other)]
    assert failed(decode.decode_matches_prefill([one, other], scored, reduced)) == []
    assert len(failed(decode.decode_matches_prefill([one, other], [rescored(one, 0), rescored(other)], reduced))) == 1


def test_same_scores_and_same_generations_fail_on_noise(scores, generation, reduced, failed):
    assert failed(decode.same_scores("x.y", [scores()], [scores()], reduced, cause="c")) == []
    (finding,) = failed(decode.same_scores("x.y", [scores(noise=0.5)], [scores()], reduced, cause="c"))
    assert finding.check == "x.y"
    assert finding.cause == "c"
    assert failed(decode.same_generations("x.y", [generation()], [generation()], reduced, cause="c")) == []
    assert failed(decode.same_generations("x.y", [generation(noise=2.0)], [generation()], reduced, cause="c"))


def test_nothing_is_never_a_pass(installation):
    empty = [
        decode.finite_logprobs([]),
        decode.token_runs([]),
        decode.mean_kl([], [], installation),
        decode.greedy_ids([], [], installation),
        decode.token_logprobs([], [], installation),
        decode.passage_nll([], [], installation),
        decode.nll_by_window([], [], installation),
        decode.decode_matches_prefill([], [], installation),
        decode.same_scores("x.y", [], [], installation, cause=""),
        decode.same_generations("x.y", [], [], installation, cause=""),
        decode.closed_questions({}, []),
        decode.garbled_text([]),
        decode.attention_outputs([], 1),
        decode.hidden_states("x", {}, {}, installation),
        decode.oracles_agree([], {"a": [], "b": []}, installation),
    ]
    assert all(len(findings) == 1 and findings[0].outcome is Outcome.INCONCLUSIVE for findings in empty)
