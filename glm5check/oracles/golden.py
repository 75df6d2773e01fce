"""Recorded goldens: what a trusted server said once, bound to the model by its digest.

    golden = record(client, prompts, texts, model_digest=..., fingerprint=...)
    golden.write(Path("golden.json"))
    oracle = GoldenOracle(Path("golden.json"), model_digest=...)

A golden of another model is refused, and a prompt that it does not hold is inconclusive. The file is JSON; entries are
found by their token ids, so that it does not matter what a prompt is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from glm5check.errors import FingerprintError, SetupError, UnsupportedError
from glm5check.records import Generation, Scores, TokenChoice

FORMAT: Final = 1
LARGEST: Final = 512 << 20
"""Bytes. 12 prompts of 48 tokens with 20 alternatives take 0.3 MB."""

_ADVICE: Final = "record it again: `glm5check record` against a server that you trust"


class _Token(msgspec.Struct, array_like=True, frozen=True):
    """Id, logprob (None for a number that is none), and the alternatives as ids and logprobs."""

    token_id: int
    logprob: float | None
    top_ids: list[int]
    top_logprobs: list[float | None]


class _Entry(msgspec.Struct, frozen=True):
    """One prompt. Of a score, `tokens` are the prompt's own after the first; of a generation, what followed."""

    prompt: str
    prompt_ids: list[int]
    tokens: list[_Token]
    text: str = ""
    finish_reason: str = ""
    nll: float | None = None


class _File(msgspec.Struct, frozen=True):
    format: int
    model_digest: str
    fingerprint: dict[str, str]
    scores: list[_Entry]
    generations: list[_Entry]


class GoldenOracle:
    """Answers from one recorded file.

    Raises SetupError for a file that is none, FingerprintError for one of another model than `model_digest`.
    """

    def __init__(self, path: Path, *, model_digest: str) -> None:
        recorded = _read(path)
        if recorded.model_digest != model_digest:
            raise FingerprintError(
                f"the golden was recorded of model {recorded.model_digest[:16]}, this is {model_digest[:16]}",
                where=str(path),
                do=_ADVICE,
            )
        self.name = f"golden {path.name}"
        self.fingerprint: Mapping[str, str] = recorded.fingerprint
        self._scores = {tuple(entry.prompt_ids): entry for entry in recorded.scores}
        self._generations = {tuple(entry.prompt_ids): entry for entry in recorded.generations}

    def score(self, name: str, prompt_ids: Sequence[int]) -> Scores:
        """The recorded scores of these ids. Raises UnsupportedError if there are none."""
        entry = self._find(self._scores, name, prompt_ids)
        return Scores(prompt=name, prompt_ids=tuple(prompt_ids), tokens=_choices(entry))

    def generate(self, name: str, prompt_ids: Sequence[int], *, max_tokens: int) -> Generation:
        """The recorded continuation, cut to `max_tokens`. Raises UnsupportedError if none was recorded."""
        entry = self._find(self._generations, name, prompt_ids)
        tokens = _choices(entry)[:max_tokens]
        finish = entry.finish_reason if len(tokens) == len(entry.tokens) else "length"
        return Generation(
            prompt=name, prompt_ids=tuple(prompt_ids), tokens=tokens, text=entry.text, finish_reason=finish
        )

    def _find(self, entries: Mapping[tuple[int, ...], _Entry], name: str, prompt_ids: Sequence[int]) -> _Entry:
        try:
            return entries[tuple(prompt_ids)]
        except KeyError:
            raise UnsupportedError(f"the golden does not hold {name}", where=self.name, do=_ADVICE) from None


def write(
    path: Path,
    scores: Sequence[Scores],
    generations: Sequence[Generation],
    *,
    model_digest: str,
    fingerprint: Mapping[str, str],
) -> None:
    """Write a golden. Raises SetupError if an answer is missing or no number: that is nothing to judge by."""
    records: list[Scores | Generation] = [*scores, *generations]
    for record in records:
        if record.error or not all(math.isfinite(choice.logprob) for choice in record.tokens):
            raise SetupError(
                "the server to record has no finite answer", where=record.prompt, do="record from a healthy server"
            )
    content = _File(
        format=FORMAT,
        model_digest=model_digest,
        fingerprint=dict(fingerprint),
        scores=[_entry(record, nll=-sum(choice.logprob for choice in record.tokens)) for record in scores],
        generations=[_entry(record) for record in generations],
    )
    path.write_bytes(msgspec.json.encode(content) + b"\n")


def _read(path: Path) -> _File:
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise SetupError(f"{size} bytes are too many for a golden", where=str(path), do=_ADVICE)
        recorded = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise SetupError(f"cannot read the golden: {error.strerror}", where=str(path), do=_ADVICE) from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SetupError(f"this is no golden: {error}", where=str(path), do=_ADVICE) from None
    if recorded.format != FORMAT:
        raise SetupError(f"the golden has format {recorded.format}, not {FORMAT}", where=str(path), do=_ADVICE)
    for entry in (*recorded.scores, *recorded.generations):
        if any(len(token.top_ids) != len(token.top_logprobs) for token in entry.tokens):
            raise SetupError("ids and logprobs differ in number", where=f"{path}: {entry.prompt}", do=_ADVICE)
    for entry in recorded.scores:
        if len(entry.tokens) != len(entry.prompt_ids) - 1:
            raise SetupError("tokens and scores differ in number", where=f"{path}: {entry.prompt}", do=_ADVICE)
    return recorded


def _entry(record: Scores | Generation, nll: float | None = None) -> _Entry:
    tokens = [
        _Token(choice.token_id, choice.logprob, list(choice.top), list(choice.top.values())) for choice in record.tokens
    ]
    return _Entry(
        prompt=record.prompt,
        prompt_ids=list(record.prompt_ids),
        tokens=tokens,
        text=record.text if isinstance(record, Generation) else "",
        finish_reason=record.finish_reason if isinstance(record, Generation) else "",
        nll=nll,
    )


def _choices(entry: _Entry) -> tuple[TokenChoice, ...]:
    """JSON has no infinities: they are written as null and read as minus infinity, a banned alternative."""
    return tuple(
        TokenChoice(
            token.token_id,
            math.nan if token.logprob is None else token.logprob,
            {
                key: -math.inf if value is None else value
                for key, value in zip(token.top_ids, token.top_logprobs, strict=True)
            },
        )
        for token in entry.tokens
    )
