"""Does it talk: closed questions at temperature 0."""

from glm5check.checks.decode import closed_questions

ANSWER_TOKENS = 16


def test_closed_questions_are_answered_through_completions(server, questions, verdict):
    """Proves that the model decodes what it was trained on. Cannot see faults that leave memorised text intact."""
    asked = [question for question in questions if question.form == "completion"]
    got = {item.name: server.client.complete(item.name, item.prompt, max_tokens=ANSWER_TOKENS) for item in asked}
    verdict(closed_questions(got, asked))


def test_closed_questions_are_answered_through_chat(server, questions, verdict):
    """The same through the chat template, so a doubled or missing `[gMASK]<sop>` shows too."""
    asked = [question for question in questions if question.form == "chat"]
    got = {item.name: server.client.chat(item.name, item.prompt, max_tokens=ANSWER_TOKENS) for item in asked}
    verdict(closed_questions(got, asked))
