"""Many mixed requests, each with its own time limit; at the end everything is as at the beginning."""

import random

import pytest

from glm5check import tolerances
from glm5check.checks import context, decode
from glm5check.serving import asking
from glm5check.serving.client import Client

SHORT, LONG = 60, 200
SLOTS = 8
SHARED = 0.3
"""Share of requests that begin with the same text as others, so that caches are hit."""


@pytest.fixture
def soak(server, settings, context_limit, filler):
    """Send so many requests of mixed lengths, SLOTS of them at a time."""
    source = random.Random(7)
    longest = min(context_limit - 64, 2048)

    def run(count):
        with Client(server.base_url, server.model, api_key=settings.api_key, limit_s=tolerances.SOAK_LIMIT_S) as client:

            def request(number):
                length, tokens = source.randint(4, longest), source.randint(1, 32)
                text = filler(longest + count)
                start = 0 if source.random() < SHARED else number
                ids = text[start : start + length]
                return lambda: asking.complete(client, f"soak-{number}", ids, max_tokens=tokens, ignore_eos=True)

            return asking.in_flight([request(number) for number in range(count)], SLOTS)

    return run


@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def test_mixed_requests_all_finish_with_finite_logprobs(
    count, soak, server, random_scores, alternatives, installation, verdict
):
    """No request fails, hangs or has NaN; afterwards the first prompt scores as it did before.

    A fault that shows in one request of fifty shows here, as does state that builds up under load.
    """
    answers = soak(count)
    first = random_scores[0]
    again = asking.score(server.client, first.prompt, first.prompt_ids, top=alternatives)
    cause = "state that builds up under load: a KV block reused without being written, or memory that is overwritten"
    verdict(
        context.in_time(answers, tolerances.SOAK_LIMIT_S)
        + decode.finite_logprobs(answers)
        + decode.same_scores("context.after_soak", [again], [first], installation, cause=cause)
    )
