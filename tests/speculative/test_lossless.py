"""Speculative decoding against plain decoding of the same model, and tool and reasoning parsers beside it."""

import json

import pytest

from fixtures.decode import PLAIN
from glm5check.checks import speculative, tokenizer
from glm5check.serving import asking
from glm5check.serving.speculation import read_acceptance

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
PARSERS = ("--enable-auto-tool-choice", "--tool-call-parser=glm47", "--reasoning-parser=glm45")
TOKENS = 64
REPETITIVE = {
    "sentence": "The old cat sleeps under the tree. " * 6,
    "list": "1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2,",
    "code": "x = 1\ny = x + 2\n" * 6,
    "days": "Monday, Tuesday, Wednesday, " * 5,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def speculating(variant):
    """A second server with ngram drafts and GLM-5's parsers."""
    with variant(f"--speculative-config={json.dumps(NGRAM)}", *PARSERS) as server:
        yield server


@pytest.fixture(scope="module")
def prompts(random_prompts):
    """Random tokens, where drafts are mostly wrong, and repetitive text, where they are mostly right."""
    return {**REPETITIVE, **dict(list(random_prompts.items())[:3])}


def ask(server, prompts):
    return [
        asking.complete(server.client, name, prompt, max_tokens=TOKENS, ignore_eos=True)
        for name, prompt in prompts.items()
    ]


def test_speculation_does_not_change_greedy_text(server, speculating, prompts, installation, verdict):
    verdict(speculative.lossless(ask(speculating, prompts), ask(server, prompts), installation))


def test_drafts_are_accepted_on_repetitive_text(speculating, verdict):
    """A canary: wrong logits in verification show as no acceptance at all."""
    before = read_acceptance(speculating.client.metrics())
    ask(speculating, REPETITIVE)
    verdict(speculative.acceptance(read_acceptance(speculating.client.metrics()).since(before)))


def test_a_tool_call_is_parsed(server, speculating, verdict):
    """The parsed call against the same answer as plain text; which city the tiny model asks for is its own affair."""
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    ids = server.client.tokenize_chat(question, tools=[WEATHER], **PLAIN)
    plain = server.client.complete("weather", ids, max_tokens=48).text
    answer = speculating.client.converse(question, max_tokens=48, tools=[WEATHER], **PLAIN)
    verdict(tokenizer.parses_tool_call(answer["choices"][0]["message"], plain=plain))


@pytest.mark.parametrize("thinking", [False, True])
def test_reasoning_is_separated(speculating, thinking, verdict):
    answer = speculating.client.converse(
        [{"role": "user", "content": "What is the capital of France?"}],
        max_tokens=24,
        chat_template_kwargs={"enable_thinking": thinking},
    )
    verdict(tokenizer.separates_reasoning(answer["choices"][0]["message"]))
