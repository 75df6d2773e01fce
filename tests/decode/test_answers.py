"""Does it talk: closed questions at temperature 0, and what garbage looks like."""

import pytest

from glm5check.checks import decode


@pytest.mark.parametrize("form", ["completion", "chat"])
def test_closed_questions_are_answered(form, answers, questions, is_tiny, verdict):
    """Proves that the model decodes what it knows, through the chat template too. Cannot see faults that leave
    memorised text intact: a model whose every second row is wrong still answers these."""
    asked = [question for question in questions if question.form == form]
    verdict(decode.closed_questions(answers, asked, was_trained_on_them=is_tiny))


def test_answers_have_finite_logprobs(answers, verdict):
    """NaN in the logits shows here even where the text does not show it."""
    verdict(decode.finite_logprobs(list(answers.values())))


def test_answers_do_not_get_stuck_on_one_token(answers, verdict):
    verdict(decode.token_runs(list(answers.values())))


def test_answers_do_not_look_like_garbage(answers, is_tiny, verdict):
    """Cycles, broken characters, special tokens, answers without end: two of them together are a verdict."""
    verdict(decode.garbled_text(list(answers.values()), should_end=is_tiny))
