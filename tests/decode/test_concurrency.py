"""Batches of several sizes: faults of padded rows and of single slots show only there."""

import pytest

from fixtures.decode import ask, rescored
from glm5check.checks import decode
from glm5check.serving.asking import together

LADDER = [1, 2, 3, 5, 7, 9, 17]
"""Odd sizes are padded up to the next captured graph; 9 and 17 exceed the default's 8 sequences and queue."""
LARGEST_BATCH = 64


@pytest.fixture(scope="module")
def ask_at_once(server, questions):
    """Ask that many different questions in the same moment (the list again from its start when it ends)."""

    def ask_all(size):
        chosen = [questions[slot % len(questions)] for slot in range(size)]
        got = together([lambda question=question: ask(server, question) for question in chosen])
        return chosen, got

    return ask_all


@pytest.mark.parametrize("size", LADDER)
def test_every_slot_of_a_batch_is_right(size, talks, ask_at_once, is_tiny, verdict):
    """Every answer is scored, not a sample: a fault in one slot of seven is a fault."""
    chosen, got = ask_at_once(size)
    findings = [*decode.finite_logprobs(got), *decode.token_runs(got)]
    answers = {answer.prompt: answer for answer in got}
    verdict(findings + decode.closed_questions(answers, chosen, was_trained_on_them=is_tiny))


@pytest.mark.parametrize("size", [3, 9])
def test_every_slot_decodes_what_prefill_scores(size, server, decode_at_once, installation, verdict):
    """Random text decoded in one batch, each answer scored again alone: needs no reference and no knowledge.

    Catches a wrong slot by its distributions where the text may be right by luck. Cannot see what prefill shares.
    """
    decoded = decode_at_once(size)
    alone = [rescored(server, item) for item in decoded if not item.error]
    verdict(decode.decode_matches_prefill(decoded, alone, installation))


def test_batches_around_captured_sizes(server, is_synthetic, ask_at_once, decode_at_once, verdict):
    """One more and one fewer than each captured graph size, where padding is largest and smallest."""
    sizes = server.client.capture_sizes()
    around = sorted({near for size in sizes for near in (size - 1, size, size + 1) if 0 < near <= LARGEST_BATCH})
    batches = [size for size in around if size not in LADDER]
    if is_synthetic:  # which repeats itself when it is right
        verdict(decode.finite_logprobs([answer for size in batches for answer in decode_at_once(size)]))
        return
    answers = [answer for size in batches for answer in ask_at_once(size)[1]]
    verdict(decode.finite_logprobs(answers) + decode.token_runs(answers))
