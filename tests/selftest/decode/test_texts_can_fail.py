"""Garbage as real reports quote it, and questions that are answered wrongly."""

import pytest

from glm5check.checks import decode
from glm5check.checks.decode.texts import has_tail_cycle
from glm5check.records import Generation

GARBAGE = {
    "one character": "!" * 200,
    "one word": "should " * 40,
    "pair": "C# | " * 30,
    "phrase": "the answer is the answer is " * 12,
}


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_cycles_of_real_reports_are_seen(text):
    assert has_tail_cycle("A healthy beginning. " + text)


@pytest.mark.parametrize("text", ["", "!" * 100, "word " * 7, "A sentence that ends. " * 3, "ab" * 59])
def test_short_repetition_is_healthy(text):
    assert not has_tail_cycle(text)


def test_two_signs_fail_and_one_does_not(failed):
    one = Generation(prompt="a", text="caf\ufffd au lait", finish_reason="stop")
    healthy = Generation(prompt="b", text="Paris.", finish_reason="stop")
    assert failed(decode.garbled_text([one, healthy])) == []
    other = Generation(prompt="c", text="Paris.<|user|>", finish_reason="stop")
    (finding,) = failed(decode.garbled_text([one, other]))
    assert "2 signs" in finding.got
    endless = Generation(prompt="d", text="Paris. Paris is", finish_reason="length")
    assert failed(decode.garbled_text([endless, endless]))
    assert failed(decode.garbled_text([endless, endless], should_end=False)) == []


def test_a_character_that_is_cut_off_is_no_sign():
    assert decode.text_signals(Generation(prompt="a", text="\u4eca\u5929\ufffd\ufffd", finish_reason="length")) == []
    assert decode.text_signals(Generation(prompt="a", text="\u4eca\u5929\ufffd", finish_reason="stop")) != []


@pytest.fixture
def questions():
    kinds = [("fr", " Paris."), ("de", " Berlin.")] * 10
    return [
        decode.Question(name=f"{name}-{i}", kind="capital", form="completion", prompt="?", answer=answer)
        for i, (name, answer) in enumerate(kinds)
    ]


def answers(questions, **wrong):
    texts = {question.name: question.answer for question in questions} | wrong
    return {name: Generation(prompt=name, text=text, finish_reason="stop") for name, text in texts.items()}


def test_a_trained_model_answers_all(questions, failed):
    assert failed(decode.closed_questions(answers(questions), questions)) == []
    wrong = answers(questions) | {"fr-0": Generation(prompt="fr-0", text="!!!!!!", finish_reason="length")}
    (finding,) = failed(decode.closed_questions(wrong, questions))
    assert finding.where["prompt"] == "fr-0"
    assert "NaN" in finding.cause


def test_another_model_may_phrase_its_answers(questions, failed):
    free = {
        name: Generation(prompt=name, text=f"It is{question.answer}")
        for name, question in ((question.name, question) for question in questions)
    }
    assert failed(decode.closed_questions(free, questions, was_trained_on_them=False)) == []
    for question in questions[:3]:
        free[question.name] = Generation(prompt=question.name, text="However.com no to")
    (finding,) = failed(decode.closed_questions(free, questions, was_trained_on_them=False))
    assert "17 of 20" in finding.got
