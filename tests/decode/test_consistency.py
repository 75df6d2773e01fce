"""The server against itself: no reference, and faults of the decode path alone."""

from glm5check.checks import decode
from glm5check.serving import asking


def test_decode_and_prefill_are_one_function(continued, continued_rescored, installation, verdict):
    """What was decoded token by token, scored again as one prompt, has the same distributions.

    Catches what only decode steps do: another attention kernel, replayed graphs, stale positions. Cannot see a fault
    that both share.
    """
    verdict(decode.decode_matches_prefill(continued, continued_rescored, installation))


def test_decoded_logprobs_are_finite(continued, continued_rescored, verdict):
    verdict(decode.finite_logprobs([*continued, *continued_rescored]))


def test_a_request_repeats_itself(server, random_prompts, alternatives, random_scores, installation, verdict):
    """Asked again later, alone: the same scores."""
    again = [
        asking.score(server.client, first.prompt, first.prompt_ids, top=alternatives) for first in random_scores[:2]
    ]
    cause = "state left by earlier requests: a KV block that is reused without being written, or a stale graph input"
    verdict(decode.same_scores("decode.repeat", again, random_scores, installation, cause=cause))


def test_random_text_has_finite_logprobs(random_scores, verdict):
    verdict(decode.finite_logprobs(random_scores))
