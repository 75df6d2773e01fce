"""Contexts of growing length, across every border that real faults were found at."""

import pytest

from glm5check.checks import context, decode
from glm5check.oracles.following import follow
from glm5check.serving import asking

TOP = 20
ANSWER_TOKENS = 8
CROSSING_TOKENS = 8


@pytest.fixture(scope="module")
def long_scores(server, ladder):
    return [asking.score(server.client, name, ids, top=TOP) for name, ids in ladder.items()]


@pytest.fixture(scope="module")
def needle_answers(server, placed_needles):
    return {
        placed.needle.name: asking.complete(
            server.client, placed.needle.name, placed.prompt_ids, max_tokens=ANSWER_TOKENS
        )
        for placed in placed_needles
    }


def test_every_length_is_scored_as_the_oracle_does(long_scores, oracle, installation, verdict):
    """Likelihood by window of positions: a rope or indexer fault grows with position, or begins at a border."""
    want = [oracle.score(scores.prompt, scores.prompt_ids) for scores in long_scores]
    verdict(decode.nll_by_window(long_scores, want, installation) + decode.mean_kl(long_scores, want, installation))


def test_every_length_has_finite_logprobs(long_scores, verdict):
    verdict(decode.finite_logprobs(long_scores))


def test_decoding_goes_on_at_every_length(server, ladder, installation, verdict):
    """Decode steps behind a prompt of each length, scored again as one prompt: needs no oracle."""
    generations = [
        asking.complete(server.client, name, ids, max_tokens=CROSSING_TOKENS, top=TOP, ignore_eos=True)
        for name, ids in ladder.items()
    ]
    rescored = [
        asking.score(server.client, item.prompt, item.prompt_ids + item.ids, top=TOP)
        for item in generations
        if not item.error
    ]
    verdict(decode.decode_matches_prefill(generations, rescored, installation))


def test_facts_are_known_behind_every_length(talks, needle_answers, placed_needles, verdict):
    """A question whose answer the model knows, asked behind a long text."""
    verdict(
        context.needles(needle_answers, [placed.needle for placed in placed_needles if placed.needle.depth is None])
    )


def test_needles_are_found_at_every_depth(
    needle_answers, placed_needles, is_tiny, is_synthetic, request, installation, verdict
):
    """Facts hidden in the text. Where the model finds few of them, its answers are compared with the oracle's."""
    hidden = [placed for placed in placed_needles if placed.needle.depth is not None]
    if not (is_tiny or is_synthetic):
        verdict(context.needles(needle_answers, [placed.needle for placed in hidden]))
        return
    oracle = request.getfixturevalue("oracle")
    got = [needle_answers[placed.needle.name] for placed in hidden]
    want = [follow(oracle, answer) for answer in got if not answer.error]
    verdict(decode.greedy_ids(got, want, installation))
