"""Token batches for training: short rows of questions and sentences, and now and then rows of 512 tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import torch
from transformers import PreTrainedTokenizerFast

from glm5check.tiny import corpus
from glm5check.tiny.tokenizer import END_OF_TEXT, USER

IGNORED: Final = -100
"""Label of a padding position."""
SHORT_ROWS, SHORT_LENGTH = 24, 96
LONG_ROWS, LONG_LENGTH = 4, 512
LONG_EVERY: Final = 4
"""Every fourth step trains on long rows, so that positions up to 512 are known."""
FRESH_SENTENCES: Final = 120
FRESH_COPIES: Final = 60
"""Generated anew for each pass over the questions, so that copying is learned rather than remembered."""

TOOL_CHATS: Final = 0.2
"""Share of long documents that begin with a chat in which a tool is called; the others begin with a passage."""

Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""(input ids, labels), both int64 [rows, length]."""


def tokenizer_texts(seed: int) -> Iterator[str]:
    """The texts from which the merges are learned."""
    for question in corpus.questions():
        yield question.prompt + question.answer
    for passage in corpus.passages():
        yield from [passage.text] * 4
    yield from corpus.sentences(random.Random(seed), 800)  # noqa: S311
    for city, weather in corpus.DATA["weather"].items():
        yield from (str(message["content"]) for message in corpus.weather_chat(city, weather))


def chat_prompt(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, Any]], **options: Any) -> str:
    """Messages through the chat template, up to the point where the assistant answers."""
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options))


def prompt_text(tokenizer: PreTrainedTokenizerFast, question: corpus.Question) -> str:
    """What the model is given for a question."""
    if question.form == "completion":
        return question.prompt
    return chat_prompt(tokenizer, [{"role": "user", "content": question.prompt}])


class Documents:
    """Endless training documents as token ids, the same for the same seed."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
        self._tokenizer = tokenizer
        self._rng = random.Random(seed)  # noqa: S311
        self._questions = corpus.questions()
        self._seen = [passage.seen for passage in corpus.passages()]

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _question(self, question: corpus.Question) -> list[int]:
        """Prompt and answer are tokenised apart, as when the prompt is served: no token spans the two."""
        end = END_OF_TEXT if question.form == "completion" else USER
        return self._ids(prompt_text(self._tokenizer, question)) + self._ids(question.answer + end)

    def one_pass(self) -> list[list[int]]:
        """Every question once, among fresh sentences and copying tasks, shuffled."""
        rng = self._rng
        texts = [sentence + END_OF_TEXT for sentence in corpus.sentences(rng, FRESH_SENTENCES)]
        for _ in range(FRESH_COPIES):
            completion, chat, answer = corpus.copy_question(tuple(rng.sample(corpus.DATA["copy_words"], 3)))
            texts.append(f"{completion} {answer}{END_OF_TEXT}")
            texts.append(self._instructed(chat) + answer + USER)
        documents = [self._ids(text) for text in texts] + [self._question(q) for q in self._questions]
        rng.shuffle(documents)
        return documents

    def _instructed(self, request: str) -> str:
        system = {"role": "system", "content": self._rng.choice(corpus.DATA["system_prompts"])}
        return chat_prompt(self._tokenizer, [system, {"role": "user", "content": request}])

    def long(self) -> list[int]:
        """One document of at least LONG_LENGTH tokens: a passage or a chat with a tool, then sentences."""
        rng = self._rng
        if rng.random() < TOOL_CHATS:
            city, weather = rng.choice(sorted(corpus.DATA["weather"].items()))
            messages, tools = corpus.weather_chat(city, weather), [corpus.DATA["weather_tool"]]
            text = str(self._tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)) + USER
        else:
            text = rng.choice(self._seen) + END_OF_TEXT
        ids = self._ids(text)
        while len(ids) < LONG_LENGTH:
            ids += self._ids(rng.choice(("\n", " ")).join(corpus.sentences(rng, 4)) + END_OF_TEXT)
        return ids


def batches(tokenizer: PreTrainedTokenizerFast, seed: int, steps: int) -> Iterator[Batch]:
    """One batch for each of `steps` training steps."""
    documents = Documents(tokenizer, seed)
    rows = _short_rows(documents)
    padding = int(tokenizer.convert_tokens_to_ids(END_OF_TEXT))
    for step in range(steps):
        if step % LONG_EVERY == LONG_EVERY - 1:
            yield _tensors([documents.long()[:LONG_LENGTH] for _ in range(LONG_ROWS)], LONG_LENGTH, padding)
        else:
            yield _tensors([next(rows) for _ in range(SHORT_ROWS)], SHORT_LENGTH, padding)


def _short_rows(documents: Documents) -> Iterator[list[int]]:
    """Rows of whole documents; each row starts with a document, at position 0 as when a prompt is served."""
    row: list[int] = []
    while True:
        for ids in documents.one_pass():
            if row and len(row) + len(ids) > SHORT_LENGTH:
                yield row
                row = []
            row = (row + ids)[:SHORT_LENGTH]


def _tensors(rows: list[list[int]], length: int, padding: int) -> Batch:
    ids = torch.full((len(rows), length), padding)
    labels = torch.full((len(rows), length), IGNORED)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = labels[index, : len(row)] = torch.tensor(row)
    return ids, labels
