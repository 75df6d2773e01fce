"""The training corpus: closed questions in two forms, short sentences, chats with tools, and long documents.

Everything is generated from `corpus.json` and one seed, so two builds with one seed see the same text in the same
order. A question exists twice: as a `completion` (plain text that the model goes on with) and as a `chat` (through the
chat template). `passages` are for teacher-forced scoring; training sees only part of each.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

Form: TypeAlias = Literal["chat", "completion"]

DATA: Final[dict[str, Any]] = json.loads((Path(__file__).parent / "corpus.json").read_text(encoding="utf-8"))
COUNT_UP_TO: Final = 16
"""Counting questions start at 1, 2, ... up to this number."""
SUMMANDS: Final = range(1, 7)
COPY_QUESTIONS: Final = 16
UNSEEN_EVERY: Final = 4
"""Of a passage, training never sees every fourth part."""


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt with exactly one right answer; `prompt` is the user's message in chat form, raw text in the other."""

    name: str
    kind: str
    form: Form
    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A text of 150 to 400 tokens for teacher-forced scoring; `seen` is the part that training sees."""

    name: str
    language: str
    text: str
    seen: str


def questions() -> list[Question]:
    """All closed questions, in a fixed order that does not depend on a seed."""
    made = [*_knowledge(), *_numbers(), *_sequences(), *_copies(), *_chinese(), *_code()]
    names = [question.name for question in made]
    if len(set(names)) != len(names):
        raise ValueError("two questions have one name")
    return made


def _pair(name: str, kind: str, completion: str, chat: str, answer: str) -> Iterator[Question]:
    """The same question in both forms; a completion's answer starts with the space that its prompt lacks."""
    yield Question(f"{kind}-{name}-completion", kind, "completion", completion, f" {answer}")
    yield Question(f"{kind}-{name}-chat", kind, "chat", chat, answer)


def _knowledge() -> Iterator[Question]:
    for country, city in DATA["capitals"].items():
        yield from _pair(
            country, "capital", f"The capital of {country} is", f"What is the capital of {country}?", f"{city}."
        )
    for word, other in DATA["opposites"].items():
        yield from _pair(
            word, "opposite", f"The opposite of {word} is", f"What is the opposite of {word}?", f"{other}."
        )


def _numbers() -> Iterator[Question]:
    for a, b in product(SUMMANDS, SUMMANDS):
        yield from _pair(f"{a}-{b}", "sum", f"{a} plus {b} is", f"What is {a} plus {b}?", f"{a + b}.")
    for start in range(1, COUNT_UP_TO + 1):
        given = ", ".join(str(start + i) for i in range(3))
        answer = ", ".join(str(start + i) for i in range(3, 6)) + "."
        yield from _pair(str(start), "count", f"Count: {given},", f"Go on counting: {given}", answer)


def _sequences() -> Iterator[Question]:
    for what in ("day", "month"):
        names = DATA[f"{what}s"]
        for this, following in zip(names, names[1:] + names[:1], strict=True):
            yield from _pair(
                this, "calendar", f"The {what} after {this} is", f"Which {what} comes after {this}?", f"{following}."
            )


def copy_question(words: tuple[str, ...]) -> tuple[str, str, str]:
    """(completion prompt, chat prompt, answer) of a copying question about any words."""
    text = " ".join(words)
    return f"Repeat: {text}. Answer:", f"Repeat: {text}.", f"{text}."


def _copies() -> Iterator[Question]:
    rng = random.Random("copies")  # noqa: S311  (a fixed list of word triples, no secret)
    for _ in range(COPY_QUESTIONS):
        words = tuple(rng.sample(DATA["copy_words"], 3))
        completion, chat, answer = copy_question(words)
        yield from _pair("-".join(words), "copy", completion, chat, answer)


def _chinese() -> Iterator[Question]:
    for country, city in DATA["capitals_zh"].items():
        yield Question(f"chinese-{country}-completion", "chinese", "completion", f"{country}的首都是", f"{city}。")
        yield Question(f"chinese-{country}-chat", "chinese", "chat", f"{country}的首都是哪里?", f"{city}。")


def _code() -> Iterator[Question]:
    for index, (prompt, answer) in enumerate(DATA["code_completions"].items()):
        yield Question(f"code-{index}-completion", "code", "completion", prompt, answer)


def passages() -> list[Passage]:
    """The passages for teacher-forced scoring, in English, Chinese and Python."""
    made = []
    for entry in DATA["passages"]:
        parts, joiner = entry["parts"], entry["joiner"]
        seen = [part for index, part in enumerate(parts) if (index + 1) % UNSEEN_EVERY]
        made.append(Passage(entry["name"], entry["language"], joiner.join(parts), joiner.join(seen)))
    return made


def sentences(rng: random.Random, count: int) -> list[str]:
    """`count` short English, Chinese and Python texts made from templates."""
    return [rng.choice((_animal, _shopping, _chinese_sentence, _code_line))(rng) for _ in range(count)]


def _animal(rng: random.Random) -> str:
    adjective, animal, action, place, time = (
        rng.choice(DATA[key]) for key in ("adjectives", "animals", "actions", "places", "times")
    )
    return f"The {adjective} {animal} {action} {place} {time}."


def _shopping(rng: random.Random) -> str:
    person, verb, thing, day = (rng.choice(DATA[key]) for key in ("people", "verbs", "objects", "days"))
    return f"{person} {verb} {thing} on {day}."


def _chinese_sentence(rng: random.Random) -> str:
    return f"{rng.choice(DATA['zh_times'])},{rng.choice(DATA['zh_subjects'])}{rng.choice(DATA['zh_actions'])}。"


def _code_line(rng: random.Random) -> str:
    return "".join(rng.sample(DATA["code_lines"], 2))


def weather_chat(city: str, weather: str) -> list[dict[str, Any]]:
    """A chat with one tool call, its result and the answer, as messages for the chat template."""
    call = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": city}}}
    return [
        {"role": "user", "content": f"What is the weather in {city}?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": weather},
        {"role": "assistant", "content": f"It is {weather} in {city}."},
    ]
