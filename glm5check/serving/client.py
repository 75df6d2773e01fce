"""The HTTP client of an OpenAI-compatible server: completions, chats, teacher-forced scores, vLLM's developer routes.

Everything is asked at temperature 0 with logprobs. A server that lacks a route or a field raises UnsupportedError,
which tests report as inconclusive; a server that fails or answers nonsense raises ServerError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx
import msgspec

from glm5check.errors import ServerError, UnsupportedError
from glm5check.records import Generation, Scores, TokenChoice

WHOLE_VOCABULARY: Final = -1
REQUEST_LIMIT_S: Final = 300.0
_TOKEN_PREFIX: Final = "token_id:"  # noqa: S105 - the word token, not a secret


class Client:
    """One server, one model. Thread-safe; close it, or use it as a context manager."""

    def __init__(self, base_url: str, model: str = "", *, api_key: str = "", limit_s: float = REQUEST_LIMIT_S) -> None:
        self.base_url, self.model = base_url, model
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # trust_env off: a proxy variable must not send loopback traffic elsewhere.
        self._http = httpx.Client(base_url=base_url, headers=headers, timeout=limit_s, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def models(self) -> list[dict[str, Any]]:
        """Entries of /v1/models."""
        return list(self._get_json("/v1/models").get("data") or [])

    def version(self) -> str:
        """vLLM's version, or empty where the server does not say."""
        try:
            return str(self._get_json("/version").get("version", ""))
        except ServerError:
            return ""

    def metrics(self) -> str:
        """Prometheus text of /metrics."""
        return self._request("GET", "/metrics").text

    def server_info(self) -> dict[str, Any]:
        """vLLM's own view of its configuration (developer route)."""
        return self._get_json("/server_info", params={"config_format": "json"})

    def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Token ids of `text` by the server's own tokenizer."""
        body = {"model": self.model, "prompt": text, "content": text, "add_special_tokens": special}
        answer = self._post_json("/tokenize", body)
        return _ids(answer.get("tokens"))

    def tokenize_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> tuple[int, ...]:
        """Token ids of a conversation after the chat template."""
        body = {"model": self.model, "messages": list(messages), "add_generation_prompt": True, **options}
        return _ids(self._post_json("/tokenize", body).get("tokens"))

    def complete(
        self, name: str, prompt: str | Sequence[int], *, max_tokens: int, top: int = 5, **options: Any
    ) -> Generation:
        """Greedy completion of a text or of token ids; `top` alternatives a token. `name` is what reports call it."""
        body = {
            "model": self.model,
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "logprobs": top,
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
            **options,
        }
        choice = self._choice(self._post_json("/v1/completions", body))
        logprobs = choice.get("logprobs") or {}
        ids = _generated_ids(choice, logprobs.get("tokens"))
        given = logprobs.get("token_logprobs") or []
        tops = logprobs.get("top_logprobs") or [{}] * len(ids)
        tokens = tuple(
            TokenChoice(
                token, _number(value), {_token_id(key): _number(lp) for key, lp in (alternatives or {}).items()}
            )
            for token, value, alternatives in zip(ids, given, tops, strict=False)
        )
        prompt_ids = _ids(choice.get("prompt_token_ids") or ([] if isinstance(prompt, str) else list(prompt)))
        return _generation(name, prompt_ids, tokens, choice, str(choice.get("text", "")), len(ids))

    def chat(self, name: str, text: str, *, max_tokens: int, top: int = 5, **options: Any) -> Generation:
        """Greedy answer to one user message through the chat template."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": top,
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
            **options,
        }
        answer = self._post_json("/v1/chat/completions", body)
        choice = self._choice(answer)
        entries = (choice.get("logprobs") or {}).get("content") or []
        ids = _generated_ids(choice, [entry.get("token") for entry in entries])
        tokens = tuple(
            TokenChoice(
                token,
                _number(entry.get("logprob")),
                {_token_id(item["token"]): _number(item["logprob"]) for item in entry.get("top_logprobs") or []},
            )
            for token, entry in zip(ids, entries, strict=False)
        )
        content = str((choice.get("message") or {}).get("content") or "")
        prompt_ids = _ids(answer.get("prompt_token_ids") or [])
        return _generation(name, prompt_ids, tokens, choice, content, len(ids))

    def score(self, name: str, prompt_ids: Sequence[int], *, top: int = WHOLE_VOCABULARY) -> Scores:
        """Teacher-forced scores of `prompt_ids`: one TokenChoice for each token but the first.

        `top` alternatives a position, WHOLE_VOCABULARY for all. Raises UnsupportedError where the server knows no
        `prompt_logprobs`.
        """
        body = {
            "model": self.model,
            "prompt": list(prompt_ids),
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": top,
        }
        choice = self._choice(self._post_json("/v1/completions", body))
        positions = choice.get("prompt_logprobs")
        if not positions:
            raise UnsupportedError(
                "the server gives no prompt_logprobs", where=self.base_url, do="check it through vLLM"
            )
        tokens = tuple(_scored(token, position) for token, position in zip(prompt_ids[1:], positions[1:], strict=True))
        return Scores(prompt=name, prompt_ids=tuple(prompt_ids), tokens=tokens)

    def collective_rpc(self, method: str, *args: str, limit_s: float = REQUEST_LIMIT_S) -> list[Any]:
        """Call a method of the worker extension on every rank; one result a rank (developer route)."""
        answer = self._post_json("/collective_rpc", {"method": method, "args": list(args), "timeout": limit_s})
        return list(answer.get("results") or [])

    def post(self, path: str, *, limit_s: float = REQUEST_LIMIT_S) -> None:
        """POST without a body, as /start_profile and /stop_profile want it."""
        self._request("POST", path, timeout=limit_s)

    def _choice(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        choices = answer.get("choices")
        if not choices:
            raise ServerError("the server answered without a choice", where=self.base_url, do="read the server's log")
        first: Mapping[str, Any] = choices[0]
        return first

    def _get_json(self, path: str, **options: Any) -> dict[str, Any]:
        return self._decode(self._request("GET", path, **options))

    def _post_json(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._decode(self._request("POST", path, json=body))

    def _decode(self, response: httpx.Response) -> dict[str, Any]:
        try:
            answer = msgspec.json.decode(response.content)
        except msgspec.DecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise ServerError("the server's answer is no JSON object", where=str(response.url), do="check the address")
        return answer

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TimeoutException:
            raise ServerError(
                "the server did not answer in time", where=self.base_url + path, do="a worker may hang: read its log"
            ) from None
        except httpx.HTTPError as error:
            raise ServerError(
                f"the server cannot be reached: {error}", where=self.base_url + path, do="check that it runs"
            ) from None
        if response.status_code in (404, 405, 501):
            raise UnsupportedError(f"the server has no {path}", where=self.base_url, do="check it through vLLM")
        if response.is_error:
            raise ServerError(
                f"HTTP {response.status_code}: {response.text[:300]}", where=self.base_url + path, do="read its log"
            )
        return response


def _generation(
    name: str,
    prompt_ids: tuple[int, ...],
    tokens: tuple[TokenChoice, ...],
    choice: Mapping[str, Any],
    text: str,
    count: int,
) -> Generation:
    if len(tokens) != count:
        raise ServerError(f"{count} tokens came with {len(tokens)} logprobs", where=name, do="read the server's log")
    finish = str(choice.get("finish_reason") or "")
    return Generation(prompt=name, prompt_ids=prompt_ids, tokens=tokens, text=text, finish_reason=finish)


def _generated_ids(choice: Mapping[str, Any], tokens: Sequence[Any] | None) -> tuple[int, ...]:
    if choice.get("token_ids"):
        return _ids(choice["token_ids"])
    if tokens is None or not all(isinstance(token, str) and token.startswith(_TOKEN_PREFIX) for token in tokens):
        raise UnsupportedError("the server gives no token ids", where="completion", do="check it through vLLM")
    return tuple(_token_id(token) for token in tokens)


def _scored(token: int, position: Mapping[str, Any] | None) -> TokenChoice:
    top = {int(key): _number(entry.get("logprob")) for key, entry in (position or {}).items()}
    return TokenChoice(token, top.get(token, float("nan")), top)


def _token_id(token: str) -> int:
    if not token.startswith(_TOKEN_PREFIX):
        raise UnsupportedError(
            "the server names alternatives by text, not by id", where=token[:40], do="check it through vLLM"
        )
    return int(token.removeprefix(_TOKEN_PREFIX))


def _ids(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values or ())


def _number(value: Any) -> float:
    """A logprob; null becomes NaN, which the checks report."""
    return float("nan") if value is None else float(value)
