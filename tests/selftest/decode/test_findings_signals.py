"""What the checks without an oracle say, case by case; the approved words are in findings_signals.txt."""

import math
from dataclasses import replace

import pytest

from glm5check.checks import decode, tokenizer
from glm5check.checks.decode import Question
from glm5check.records import Generation, Streamed, TokenChoice, Vocabulary
from tests.selftest.approved import approved, told
from tests.selftest.decode.records import HALVES, answer, choice, failed, failed_scores, ids, scores

NAN = replace(HALVES, logprob=math.nan)
ABOVE = replace(HALVES, logprob=0.0, top={0: 0.0, 1: 0.5})
BANNED = replace(HALVES, top={0: -0.1, 1: -math.inf})
AMONG = replace(HALVES, top={0: -0.1, 1: -math.inf, 2: math.nan})
JUST = replace(HALVES, logprob=1e-3)


def finite(*records):
    return lambda: decode.finite_logprobs(records)


def runs(*generations):
    return lambda: decode.token_runs(generations)


def garbled(*answers, **how):
    return lambda: decode.garbled_text(answers, **how)


def said(text, name="text", finish="stop", **changes):
    return answer(name=name, text=text, finish=finish, **changes)


FRENCH = Question(name="fr", kind="capital", form="chat", prompt="?", answer=" Paris. ")
GERMAN = Question(name="de", kind="capital", form="completion", prompt="?", answer="Berlin")
SPANISH = Question(name="es", kind="capital", form="completion", prompt="?", answer="Madrid")


def asked(*questions, trained=True, **texts):
    got = {name: text if isinstance(text, Generation) else said(text, name) for name, text in texts.items()}
    return lambda: decode.closed_questions(got, questions, was_trained_on_them=trained)


TEN = [replace(FRENCH, name=f"q{i}") for i in range(10)]
EIGHT_OF_TEN = {f"q{i}": "In Paris!" for i in range(8)} | {"q8": " " + "no " * 30, "q9": "neither"}
NINE_OF_TEN = {**EIGHT_OF_TEN, "q8": "PARIS"}

TEXTS = {
    "two answers with finite logprobs": finite(scores(HALVES, HALVES), answer(HALVES)),
    "a logprob of an answer is no number": finite(answer(HALVES, HALVES, NAN)),
    "a logprob of a scored text is no number": finite(scores(HALVES, NAN)),
    "an alternative is no number": finite(scores(HALVES, AMONG)),
    "an alternative is above zero": finite(scores(ABOVE)),
    "an alternative is banned": finite(scores(BANNED)),
    "a logprob is above zero by rounding": finite(scores(JUST)),
    "an answer has no logprobs": finite(answer()),
    "a request failed and the next has a NaN": finite(
        failed(), failed_scores("second", "Out of range float"), scores(NAN)
    ),
    "no request was made at all": finite(),
    "an answer of different tokens": runs(ids(1, 2, 3)),
    "an answer stuck on one token": runs(ids(1, *[5] * 16)),
    "a run that is one token short": runs(ids(1, *[5] * 15)),
    "a run that ends by itself": runs(ids(*[5] * 40, finish="stop")),
    "a run before the end": runs(ids(*[5] * 40, 6)),
    "a run of token zero in the middle": runs(ids(4, *[0] * 8, 5, finish="stop")),
    "a shorter run of token zero": runs(ids(4, *[0] * 7, 5, finish="stop")),
    "a request failed and the next is stuck": runs(failed(), ids(*[5] * 20)),
    "nothing was generated at all": runs(),
    "two healthy answers": garbled(said("Paris."), said("Berlin.", "other")),
    "one sign in two answers": garbled(said("Paris.<|user|>"), said("Berlin.")),
    "two signs in one answer": garbled(said("caf\ufffd <|user|> " + "so on " * 9)),
    "signs in seven answers": garbled(*(said(f"{i} [gMASK]", f"t{i}") for i in range(7))),
    "a cycle and no end": garbled(said("so " + "ab" * 100, finish="length")),
    "a cycle that may go on": garbled(said("so " + "ab" * 100, finish="length"), should_end=False),
    "a request failed and the next is healthy": garbled(failed(), said("Paris.")),
    "every request failed": garbled(failed()),
    "no text was generated": garbled(),
    "every question is answered": asked(FRENCH, GERMAN, fr=" Paris.", de="Berlin, of course"),
    "one question is answered wrongly": asked(FRENCH, GERMAN, fr="Paris.", de="However " * 20),
    "one answer is empty": asked(FRENCH, fr="  "),
    "one answer is one character over and over": asked(FRENCH, fr="! ! ! !"),
    "one answer is three characters over and over": asked(FRENCH, fr="! ? ! ?"),
    "one question fails": asked(FRENCH, fr=failed("fr")),
    "no question was asked": asked(),
    "nine of ten questions are answered freely": asked(*TEN, trained=False, **NINE_OF_TEN),
    "eight of ten questions are answered freely": asked(*TEN, trained=False, **EIGHT_OF_TEN),
    "all questions are answered freely": asked(FRENCH, GERMAN, trained=False, fr="It is PARIS!", de="berlin"),
    "six questions are answered wrongly": asked(*TEN[:6], trained=False, **{f"q{i}": f"no {i}" for i in range(6)}),
}

GGUF = Vocabulary(
    source="the file", tokens=("a", "b", "c"), merges=("a b",), end_ids=frozenset({1, 2}), begin_id=0, template="x\ny"
)
HF = replace(GGUF, source="the directory")
CALL = {"function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
PLAIN = "Sure. <tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
STOPPED = Generation(prompt="end", finish_reason="stop")


def vocabularies(**changes):
    return lambda: tokenizer.same_vocabulary(replace(GGUF, **changes), HF)


def tokenised(ours, theirs):
    return lambda: tokenizer.same_ids({"x": ours}, {"x": theirs}, {"x": "twelve hundred and thirty-four pieces"})


def stopped(*answers):
    return lambda: tokenizer.stops(dict(enumerate(answers, start=7)))


def streamed(whole, *pieces):
    return lambda: tokenizer.streams_whole([Streamed(prompt="x", pieces=pieces, whole=whole)])


def called(plain=PLAIN, **message):
    return lambda: tokenizer.parses_tool_call(message, plain=plain)


TOKENS = {
    "the vocabularies are the same": vocabularies(),
    "a token is another one": vocabularies(tokens=("a", "part" * 15, "c")),
    "the file has a token less": vocabularies(tokens=("a", "b")),
    "the file has a token more": vocabularies(tokens=("a", "b", "c", "d")),
    "the file has other ends": vocabularies(end_ids=frozenset({2})),
    "the template has another line": vocabularies(template="x\nz"),
    "the file has no merges": vocabularies(merges=()),
    "the directory has no merges": lambda: tokenizer.same_vocabulary(GGUF, replace(HF, merges=())),
    "the ids are the same": tokenised((1, 2, 3), (1, 2, 3)),
    "an id is another one": tokenised((1, 5, 6, 7, 8, 9), (1, 2, 3, 4, 5, 6)),
    "there is an id more": tokenised((1, 2, 3), (1, 2)),
    "there is an id less": tokenised((1,), (1, 2)),
    "no text was tokenised": lambda: tokenizer.same_ids({}, {}, {}),
    "a conversation begins once": lambda: tokenizer.begins_once({"x": (1, 2, 5, 6, 7, 8, 9)}, (1, 2)),
    "a conversation begins twice": lambda: tokenizer.begins_once({"x": (1, 2, 1, 2, 5)}, (1, 2)),
    "a conversation begins late": lambda: tokenizer.begins_once({"x": (5, 1, 2)}, (1, 2)),
    "a token of the beginning comes again": lambda: tokenizer.begins_once({"x": (1, 2, 5, 2)}, (1, 2)),
    "a conversation has no beginning": lambda: tokenizer.begins_once({"x": (5,)}, (1, 2)),
    "the tokenizer has no beginning": lambda: tokenizer.begins_once({"x": (5,)}, ()),
    "no conversation was tokenised": lambda: tokenizer.begins_once({}, (1, 2)),
    "an end stops": stopped(STOPPED, replace(STOPPED, tokens=(HALVES,), text=" ")),
    "an end does not stop": stopped(replace(STOPPED, finish_reason="length")),
    "an end leaves text": stopped(replace(STOPPED, text="and so on, for many more than thirty characters")),
    "an end comes after two tokens": stopped(replace(STOPPED, tokens=(HALVES, HALVES))),
    "an end fails and the next is judged": stopped(failed("end"), STOPPED),
    "no end is known": stopped(),
    "a stream is whole": streamed("a\u4e2db", "a", "\u4e2d", "b"),
    "a stream breaks a character": streamed("a\u4e2db", "a", "\ufffd\ufffd", "b"),
    "a stream breaks a character of a whole that ends in a broken one": streamed(
        "a\u4e2db\ufffd", "a\ufffdb", "\ufffd"
    ),
    "a stream loses text": streamed("a\u4e2db", "a", "b"),
    "a stream is cut inside a character, as the whole is": streamed("ab\ufffd", "ab", "\ufffd"),
    "the whole itself has a broken character": streamed("a\ufffdb", "a\ufffd", "b"),
    "a long stream differs": streamed("yes " * 25, "no " * 33),
    "nothing was streamed": lambda: tokenizer.streams_whole([]),
    "a tool is called": called(tool_calls=[CALL]),
    "a tool call has its arguments as an object": called(
        tool_calls=[{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]
    ),
    "a tool call is left in the text": called(content=PLAIN),
    "a tool call has no content either": called(content=None),
    "a tool call has broken arguments": called(tool_calls=[{"function": {"name": "get_weather", "arguments": "{"}}]),
    "the model called two tools": called(
        PLAIN + "<tool_call>stop<arg_key>a</arg_key><arg_value>1</arg_value>", tool_calls=[CALL]
    ),
    "the model called no tool": called("It is sunny. " * 10, tool_calls=[CALL]),
    "reasoning is apart": lambda: tokenizer.separates_reasoning({"content": "4", "reasoning_content": "2 + 2"}),
    "reasoning has its other name": lambda: tokenizer.separates_reasoning({"content": "4", "reasoning": "<think>2"}),
    "reasoning is in the content": lambda: tokenizer.separates_reasoning({"content": "<think>" + "2 + 2 " * 20}),
    "the end of reasoning is in the content": lambda: tokenizer.separates_reasoning({"content": "2 + 2</think>4"}),
    "reasoning holds its own mark": lambda: tokenizer.separates_reasoning({"reasoning_content": "so</think>" * 9}),
    "there is neither content nor reasoning": lambda: tokenizer.separates_reasoning({"content": None}),
}
CASES = TEXTS | TOKENS


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        ("ab" * 60, True),
        ("ab" * 59 + "a", False),
        ("x" * 119, False),
        ("x" * 120, True),
        (("y" * 39 + "z") * 8, True),
        (("y" * 40 + "z") * 9, False),
        (("y" * 39 + "z") * 7, False),
        (("y" * 39 + "z") * 7 + "y" * 39, False),
    ],
)
def test_a_cycle_needs_its_length_its_repeats_and_a_short_unit(text, cycles):
    assert decode.text_signals(answer(text="Healthy. " + text)) == (["tail cycle"] if cycles else [])


def test_signs_come_in_their_order():
    everything = answer(text="caf\ufffd <|user|> " + "ab" * 60, finish="length")
    assert decode.text_signals(everything, should_end=True) == [
        "tail cycle",
        "replacement character",
        "special token",
        "no end",
    ]
    assert decode.text_signals(everything) == ["tail cycle", "replacement character", "special token"]


def test_a_choice_without_alternatives_is_judged_by_itself():
    assert decode.finite_logprobs([answer(TokenChoice(1, -0.5))])[0].outcome == "passed"
    assert decode.finite_logprobs([answer(TokenChoice(1, -math.inf))])[0].outcome == "failed"
    assert decode.finite_logprobs([answer(choice(1, 0.5, 0.5))])[0].outcome == "passed"
