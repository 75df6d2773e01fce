"""Answers in vLLM's shapes and in llama.cpp's become the same records; shapes without ids are not supported."""

import math

import pytest

from glm5check.errors import ServerError, UnsupportedError
from glm5check.records import TokenChoice
from glm5check.serving import answers

VLLM = {
    "text": " Paris.",
    "finish_reason": "stop",
    "token_ids": [11, 12],
    "prompt_token_ids": [1, 2],
    "logprobs": {
        "tokens": ["token_id:11", "token_id:12"],
        "token_logprobs": [-0.1, None],
        "top_logprobs": [{"token_id:11": -0.1, "token_id:9": -3.0}, {"token_id:12": None}],
    },
}
LLAMA_CPP = {
    "text": " Paris.",
    "finish_reason": "stop",
    "logprobs": {
        "content": [
            {"id": 11, "token": " Paris", "logprob": -0.1, "top_logprobs": [{"id": 11, "token": " P", "logprob": -0.1}]}
        ]
    },
}


def test_completions_of_both_servers_are_read():
    got = answers.completion("fr", VLLM, "The capital of France is")
    assert (got.ids, got.prompt_ids, got.finish_reason) == ((11, 12), (1, 2), "stop")
    assert got.tokens[0] == TokenChoice(11, -0.1, {11: -0.1, 9: -3.0})
    assert math.isnan(got.tokens[1].logprob)
    got = answers.completion("fr", LLAMA_CPP, [1, 2])
    assert (got.ids, got.prompt_ids) == ((11,), (1, 2))
    assert got.tokens[0].top == {11: -0.1}


def test_chats_of_both_servers_are_read():
    entry = {"token": "token_id:11", "logprob": -0.2, "top_logprobs": [{"token": "token_id:11", "logprob": -0.2}]}
    choice = {"message": {"content": "Paris."}, "token_ids": [11], "logprobs": {"content": [entry]}}
    got = answers.chat("fr", {"prompt_token_ids": [5]}, choice)
    assert (got.text, got.ids, got.prompt_ids) == ("Paris.", (11,), (5,))
    got = answers.chat("fr", {}, {"message": {"content": None}, "logprobs": LLAMA_CPP["logprobs"]})
    assert (got.text, got.ids) == ("", (11,))


def test_prompt_scores_leave_out_the_first_token():
    positions = [None, {"7": {"logprob": -0.5}, "8": {"logprob": -2.0}}, {"3": {"logprob": -1.0}}]
    got = answers.scores("x", [1, 7, 9], positions)
    assert got.tokens[0] == TokenChoice(7, -0.5, {7: -0.5, 8: -2.0})
    assert math.isnan(got.tokens[1].logprob)


@pytest.mark.parametrize(
    "logprobs", [None, {}, {"tokens": [" Paris"], "token_logprobs": [-0.1], "top_logprobs": [{" Paris": -0.1}]}]
)
def test_answers_without_ids_are_not_supported(logprobs):
    with pytest.raises(UnsupportedError, match="no token ids"):
        answers.completion("fr", {"text": " Paris", "logprobs": logprobs}, "x")


def test_tokens_without_logprobs_are_a_fault():
    with pytest.raises(ServerError, match="2 tokens came with 0 logprobs"):
        answers.completion("fr", {"text": "x", "token_ids": [1, 2], "logprobs": None}, "x")
    with pytest.raises(ServerError, match="without a choice"):
        answers.first_choice({"choices": []}, "http://x")
