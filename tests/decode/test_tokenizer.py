"""Text to ids and back: the GGUF's vocabulary, the HF tokenizer's, and what the server makes of them."""

import pytest

from fixtures.decode import PLAIN
from glm5check.checkpoint.index import GgufSet
from glm5check.checks import tokenizer
from glm5check.oracles.tokenizer import ReferenceTokenizer, gguf_vocabulary, hf_vocabulary
from glm5check.records import Streamed
from glm5check.serving import asking
from glm5check.serving.streaming import stream_chat, stream_completion

TEXTS = {
    "words": "The quick brown fox jumps over the lazy dog.",
    "numbers": "In 2024, 1234567 people paid $3.14159 each; 7x8=56.",
    "contractions": "I'm sure they've said it's what we'd do, DON'T you?",
    "spaces": "  two  spaces\n\n\ttabs\r\nand  \n ends   ",
    "code": "def f(x):\n    return {'a': x ** 2}  # comment\n",
    "chinese": "今天天气很好，我们去公园散步。",
    "mixed": "GLM-5 模型 has 78 layers；émigré naïve Ω≈3",
    "emoji": "👍🏽 👨‍👩‍👧 🇨🇳",
    "special": "[gMASK]<sop><|user|>hi<|assistant|><think></think>",
}
CONVERSATIONS = {
    "one turn": [{"role": "user", "content": "Hello"}],
    "system": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
    "two turns": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Bye"},
    ],
    "empty": [{"role": "user", "content": ""}],
}


@pytest.fixture(scope="module")
def reference(settings):
    if settings.config is None:
        pytest.skip("inconclusive: the reference tokenizer is not known; give --glm5-config of the attached model")
    return ReferenceTokenizer(settings.config)


@pytest.fixture(scope="module")
def hf(settings, reference):
    return hf_vocabulary(settings.config)


def test_the_file_has_the_tokenizer_of_the_config(settings, hf, verdict):
    """Tokens, merges, end-of-sequence ids and template of the GGUF against the HF directory's: no server needed."""
    if settings.model is None:
        pytest.skip("inconclusive: the GGUF file is not known; give --glm5-model of the attached model")
    verdict(tokenizer.same_vocabulary(gguf_vocabulary(GgufSet.open(settings.model).metadata), hf))


def test_the_server_tokenises_like_the_reference(server, reference, verdict):
    got = {name: server.client.tokenize(text) for name, text in TEXTS.items()}
    verdict(tokenizer.same_ids(got, {name: reference.ids(text) for name, text in TEXTS.items()}, TEXTS))


def test_the_server_applies_the_reference_template(server, reference, verdict):
    got = {name: server.client.tokenize_chat(messages, **PLAIN) for name, messages in CONVERSATIONS.items()}
    want = {name: reference.chat_ids(messages, enable_thinking=False) for name, messages in CONVERSATIONS.items()}
    verdict(tokenizer.same_ids(got, want, {name: str(messages) for name, messages in CONVERSATIONS.items()}))


def test_conversations_begin_once(server, reference, verdict):
    """`[gMASK]<sop>`: missing or doubled, a model answers, only worse."""
    got = {name: server.client.tokenize_chat(messages, **PLAIN) for name, messages in CONVERSATIONS.items()}
    verdict(tokenizer.begins_once(got, reference.ids("[gMASK]<sop>")))


def test_chats_are_served_with_the_template(server, reference, verdict):
    """What /tokenize says is one thing; this is what the model was really given."""
    got = asking.chat(server.client, "one turn", "Hello", max_tokens=1, **PLAIN).prompt_ids
    if not got:
        pytest.skip("inconclusive: the server does not say which prompt ids it used")
    verdict(tokenizer.begins_once({"one turn": got}, reference.ids("[gMASK]<sop>")))


def test_every_end_of_sequence_id_stops(server, hf, verdict):
    """GLM-5 has three; a server that knows the first only talks on as `<|user|>`."""
    made = {
        end: asking.complete(
            server.client, f"end {hf.tokens[end]}", "The capital of", max_tokens=4, logit_bias={str(end): 100}
        )
        for end in sorted(hf.end_ids)
    }
    verdict(tokenizer.stops(made))


def test_streams_join_to_the_whole(server, verdict):
    """Also where one character is spread over several tokens."""
    prompts = {"chinese": "法国的首都是", "english": "The capital of France is", "emoji": "👍🏽 👨‍👩‍👧 "}
    streamed = [
        Streamed(
            prompt=name,
            pieces=tuple(stream_completion(server.client, prompt, max_tokens=24)),
            whole=server.client.complete(name, prompt, max_tokens=24).text,
        )
        for name, prompt in prompts.items()
    ]
    question = "日本的首都是哪里?"
    whole = server.client.chat("chat", question, max_tokens=16, **PLAIN).text
    pieces = tuple(stream_chat(server.client, question, max_tokens=16, **PLAIN))
    verdict(tokenizer.streams_whole([*streamed, Streamed(prompt="chat", pieces=pieces, whole=whole)]))
