"""Does it talk: closed questions with one right answer, every slot of a batch scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glm5check import tolerances
from glm5check.checks import causes
from glm5check.checks.decode.judging import judged, nothing
from glm5check.records import Finding, Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A closed question: `form` is `completion` or `chat`, `answer` the text that a right model begins with."""

    name: str
    kind: str
    form: str
    prompt: str
    answer: str


def closed_questions(
    got: Mapping[str, Generation], questions: Sequence[Question], *, was_trained_on_them: bool = True
) -> list[Finding]:
    """Questions are answered with their answers: all of them exactly by a model that was trained on them, else most.

    Proves that the model talks. Cannot see faults that leave memorised text intact: that is what `mean_kl` is for. A
    model that was not trained on them may phrase the answer its own way; it must contain its words, for a share of
    tolerances.CLOSED_QUESTIONS_SHARE.
    """
    check = "decode.closed_questions"
    if not questions:
        return [nothing(check, "no question was asked")]
    if was_trained_on_them:
        return [_exact(check, question, got[question.name]) for question in questions]
    wrong = [question for question in questions if not _contains(got[question.name].text, question.answer)]
    share = 1.0 - len(wrong) / len(questions)
    shown = "; ".join(f"{item.name}: {got[item.name].text.strip()[:40]!r}" for item in wrong[:5])
    return [
        judged(
            check,
            share >= tolerances.CLOSED_QUESTIONS_SHARE,
            got=f"{len(questions) - len(wrong)} of {len(questions)} right" + (f"; wrong are {shown}" if wrong else ""),
            want=f"{tolerances.CLOSED_QUESTIONS_SHARE:.0%} right",
            where={"form": questions[0].form},
            cause=_cause(got[wrong[0].name]) if wrong else "",
            value=share,
            bound=tolerances.CLOSED_QUESTIONS_SHARE,
        )
    ]


def _exact(check: str, question: Question, answer: Generation) -> Finding:
    text = answer.text.strip()
    return judged(
        check,
        text.startswith(question.answer.strip()),
        got=answer.error or repr(text[:60]),
        want=f"{question.answer.strip()!r}, which the model was trained to answer",
        where={"prompt": question.name, "form": question.form},
        cause=_cause(answer),
    )


def _contains(text: str, answer: str) -> bool:
    def plain(words: str) -> str:
        return "".join(character for character in words.casefold() if character.isalnum())

    return plain(answer) in plain(text)


def _cause(answer: Generation) -> str:
    if answer.error:
        return causes.of_error(answer.error)
    text = answer.text.strip()
    if not text:
        return "an empty answer: the chat template or the end-of-sequence ids"
    if len(set(text)) <= 2:
        return "one token over and over: NaN in the logits, or an all-reduce that returns wrong data"
    return "garbage decode: see the other decode tests for which kind"
