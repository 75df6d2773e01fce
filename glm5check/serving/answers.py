"""Reads the JSON that OpenAI-compatible servers answer with into records: vLLM's shapes and llama.cpp's.

vLLM names tokens by id where asked to (`token_id:17`) and adds `token_ids`; llama.cpp gives `id` in every logprob entry
and answers completions in the form of chats. Where neither is there, the ids cannot be had: UnsupportedError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from glm5check.errors import ServerError, UnsupportedError
from glm5check.records import Generation, Scores, TokenChoice

_TOKEN_PREFIX: Final = "token_id:"  # noqa: S105 - the word token, not a secret


def first_choice(answer: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The answer's only choice. Raises ServerError if there is none."""
    choices = answer.get("choices")
    if not choices:
        raise ServerError("the server answered without a choice", where=where, do="read the server's log")
    first: Mapping[str, Any] = choices[0]
    return first


def completion(name: str, choice: Mapping[str, Any], prompt: str | Sequence[int]) -> Generation:
    """One choice of /v1/completions."""
    logprobs = choice.get("logprobs") or {}
    if logprobs.get("content") is not None:
        tokens = _chat_tokens(choice, logprobs["content"])
    else:
        tokens = _completion_tokens(choice, logprobs)
    prompt_ids = ids(choice.get("prompt_token_ids") or ([] if isinstance(prompt, str) else list(prompt)))
    return _generation(name, prompt_ids, tokens, choice, str(choice.get("text") or ""))


def chat(name: str, answer: Mapping[str, Any], choice: Mapping[str, Any]) -> Generation:
    """One choice of /v1/chat/completions; the text is the message's content, without reasoning and tool calls."""
    entries = (choice.get("logprobs") or {}).get("content") or []
    content = str((choice.get("message") or {}).get("content") or "")
    prompt_ids = ids(answer.get("prompt_token_ids"))
    return _generation(name, prompt_ids, _chat_tokens(choice, entries), choice, content)


def scores(name: str, prompt_ids: Sequence[int], positions: Sequence[Mapping[str, Any] | None]) -> Scores:
    """vLLM's `prompt_logprobs`: one entry a token of the prompt, the first null."""
    tokens = []
    for token, position in zip(prompt_ids[1:], positions[1:], strict=True):
        top = {int(key): number(entry.get("logprob")) for key, entry in (position or {}).items()}
        tokens.append(TokenChoice(token, top.get(token, float("nan")), top))
    return Scores(prompt=name, prompt_ids=tuple(prompt_ids), tokens=tuple(tokens))


def ids(values: Any) -> tuple[int, ...]:
    """Token ids of a JSON list; nothing of null."""
    return tuple(int(value) for value in values or ())


def numbers(values: Any) -> tuple[float, ...]:
    """Numbers of a JSON list, with NaN for null."""
    return tuple(number(value) for value in values or ())


def number(value: Any) -> float:
    """A logprob; null becomes NaN, which the checks report."""
    return float("nan") if value is None else float(value)


def _completion_tokens(choice: Mapping[str, Any], logprobs: Mapping[str, Any]) -> tuple[TokenChoice, ...]:
    generated = _generated_ids(choice, logprobs.get("tokens"))
    given = logprobs.get("token_logprobs") or []
    tops = logprobs.get("top_logprobs") or [{}] * len(generated)
    _refuse_missing(choice, len(generated), len(given))
    return tuple(
        TokenChoice(token, number(value), {_token_id(key): number(lp) for key, lp in (best or {}).items()})
        for token, value, best in zip(generated, given, tops, strict=True)
    )


def _chat_tokens(choice: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> tuple[TokenChoice, ...]:
    if entries and "id" in entries[0]:
        generated = tuple(int(entry["id"]) for entry in entries)
    else:
        generated = _generated_ids(choice, [entry.get("token") for entry in entries])
    _refuse_missing(choice, len(generated), len(entries))
    return tuple(
        TokenChoice(
            token,
            number(entry.get("logprob")),
            {_id_of(item): number(item.get("logprob")) for item in entry.get("top_logprobs") or []},
        )
        for token, entry in zip(generated, entries, strict=True)
    )


def _generation(
    name: str, prompt_ids: tuple[int, ...], tokens: tuple[TokenChoice, ...], choice: Mapping[str, Any], text: str
) -> Generation:
    finish = str(choice.get("finish_reason") or "")
    return Generation(prompt=name, prompt_ids=prompt_ids, tokens=tokens, text=text, finish_reason=finish)


def _refuse_missing(choice: Mapping[str, Any], tokens: int, logprobs: int) -> None:
    if tokens != logprobs:
        where = f"choice {choice.get('index', 0)}"
        raise ServerError(f"{tokens} tokens came with {logprobs} logprobs", where=where, do="read the server's log")


def _generated_ids(choice: Mapping[str, Any], tokens: Sequence[Any] | None) -> tuple[int, ...]:
    if choice.get("token_ids"):
        return ids(choice["token_ids"])
    if tokens is None or not all(isinstance(token, str) and token.startswith(_TOKEN_PREFIX) for token in tokens):
        raise UnsupportedError("the server gives no token ids", where="completion", do="check it through vLLM")
    return tuple(_token_id(token) for token in tokens)


def _id_of(item: Mapping[str, Any]) -> int:
    return int(item["id"]) if "id" in item else _token_id(str(item["token"]))


def _token_id(token: str) -> int:
    if not token.startswith(_TOKEN_PREFIX):
        raise UnsupportedError(
            "the server names alternatives by text, not by id", where=token[:40], do="check it through vLLM"
        )
    return int(token.removeprefix(_TOKEN_PREFIX))
