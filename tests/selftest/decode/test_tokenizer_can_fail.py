"""Tokenizer checks on vocabularies, ids, streams and messages that are right and wrong."""

from dataclasses import replace

import pytest

from fixtures import DATA
from glm5check.checkpoint.index import GgufSet
from glm5check.checks import tokenizer
from glm5check.errors import CheckpointError
from glm5check.oracles.tokenizer import ReferenceTokenizer, gguf_vocabulary, hf_vocabulary
from glm5check.records import Generation, Outcome, Streamed

TINY = DATA / "tiny-glm5"


@pytest.fixture(scope="module")
def hf():
    return hf_vocabulary(TINY)


@pytest.fixture(scope="module")
def gguf():
    return gguf_vocabulary(GgufSet.open(sorted(TINY.glob("*.gguf"))[0]).metadata)


def test_the_shipped_vocabularies_agree(gguf, hf, failed):
    assert failed(tokenizer.same_vocabulary(gguf, hf)) == []


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("tokens", lambda v: {"tokens": (*v.tokens[:300], "x", *v.tokens[301:])}),
        ("tokens", lambda v: {"tokens": v.tokens[:-1]}),
        ("merges", lambda v: {"merges": (v.merges[1], v.merges[0], *v.merges[2:])}),
        ("end-of-sequence ids", lambda v: {"end_ids": frozenset(sorted(v.end_ids)[:1])}),
        ("chat template", lambda v: {"template": v.template.replace("[gMASK]<sop>", "")}),
    ],
)
def test_another_vocabulary_is_seen(part, change, gguf, hf, failed):
    (finding,) = failed(tokenizer.same_vocabulary(replace(gguf, **change(gguf)), hf))
    assert finding.where["part"] == part


def test_other_ids_are_named_with_their_position(failed):
    texts = {"numbers": "1234"}
    assert failed(tokenizer.same_ids({"numbers": (1, 2)}, {"numbers": (1, 2)}, texts)) == []
    (finding,) = failed(tokenizer.same_ids({"numbers": (1, 5, 6)}, {"numbers": (1, 2)}, texts))
    assert "[5, 6] from position 1" in finding.got


@pytest.mark.parametrize(
    "drop_or_double", [lambda text: text.replace("[gMASK]<sop>", ""), lambda t: "[gMASK]<sop>" + t]
)
def test_a_beginning_that_is_missing_or_doubled_is_seen(drop_or_double, failed):
    reference = ReferenceTokenizer(TINY)
    text = "[gMASK]<sop><|user|>hi<|assistant|>"
    begin = reference.ids("[gMASK]<sop>")
    assert failed(tokenizer.begins_once({"chat": reference.ids(text)}, begin)) == []
    assert failed(tokenizer.begins_once({"chat": reference.ids(drop_or_double(text))}, begin))


def test_an_end_that_does_not_stop_is_seen(failed):
    stopped = Generation(prompt="end", finish_reason="stop", tokens=())
    assert failed(tokenizer.stops({7: stopped})) == []
    talked_on = replace(stopped, finish_reason="length", text="<|user|> and")
    (finding,) = failed(tokenizer.stops({7: stopped, 8: talked_on}))
    assert finding.where["token"] == "8"


@pytest.mark.parametrize(
    ("pieces", "cause"), [(("\u4eca", "\ufffd", "\ufffd", "a"), "break"), (("\u4eca", "a"), "drops")]
)
def test_streams_that_differ_from_the_whole_are_seen(pieces, cause, failed):
    whole = "\u4eca\u5929a"
    assert failed(tokenizer.streams_whole([Streamed(prompt="x", pieces=("\u4eca", "\u5929", "a"), whole=whole)])) == []
    (finding,) = failed(tokenizer.streams_whole([Streamed(prompt="x", pieces=pieces, whole=whole)]))
    assert cause in finding.cause


def test_tool_calls_and_reasoning_left_in_the_text_are_seen(failed):
    call = {"function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    plain = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
    assert failed(tokenizer.parses_tool_call({"tool_calls": [call]}, plain=plain)) == []
    assert failed(tokenizer.parses_tool_call({"content": plain}, plain=plain))
    assert failed(tokenizer.parses_tool_call({"tool_calls": [call, call]}, plain=plain))
    assert failed(tokenizer.parses_tool_call({"tool_calls": [call]}, plain=plain.replace("Paris", "Rome")))
    (finding,) = tokenizer.parses_tool_call({"content": "It is sunny."}, plain="It is sunny.")
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert failed(tokenizer.separates_reasoning({"content": "4", "reasoning_content": "2+2"})) == []
    assert failed(tokenizer.separates_reasoning({"content": "<think>2+2</think>4"}))


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"model": {}}'])
def test_a_broken_tokenizer_is_told_in_a_sentence(content, tmp_path):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        hf_vocabulary(tmp_path)
