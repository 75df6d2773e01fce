"""The HTTP client of an OpenAI-compatible server: completions, chats, teacher-forced scores, vLLM's developer routes.

Everything is asked at temperature 0 with logprobs. A server that lacks a route or a field raises UnsupportedError,
which tests report as inconclusive; a server that fails or answers nonsense raises ServerError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import httpx
import msgspec

from glm5check.errors import ServerError, UnsupportedError
from glm5check.records import Generation, Scores
from glm5check.serving import answers
from glm5check.serving.address import Address

WHOLE_VOCABULARY: Final = -1
REQUEST_LIMIT_S: Final = 300.0


class Client:
    """One server, one model. Thread-safe; close it, or use it as a context manager.

    The URL may name a user (`http://user:password@host`); `base_url` does not, since errors and fingerprints show it.
    """

    def __init__(self, base_url: str, model: str = "", *, api_key: str = "", limit_s: float = REQUEST_LIMIT_S) -> None:
        address = Address.parse(base_url, api_key)
        self.base_url, self.model = address.url, model
        headers = {"Authorization": address.authorization} if address.authorization else {}
        # trust_env off: a proxy variable must not send loopback traffic elsewhere.
        self._http = httpx.Client(
            base_url=self.base_url,
            headers=headers,
            timeout=limit_s,
            trust_env=False,
            # A server closes idle connections, and those on which a request failed (NaN in its answer); whatever is
            # sent on one in that moment would fail for no fault of its own.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

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

    def capture_sizes(self) -> tuple[int, ...]:
        """Batch sizes that CUDA graphs were captured for, ascending. Raises UnsupportedError where there are none."""
        config = self.server_info().get("vllm_config") or {}
        sizes = (config.get("compilation_config") or {}).get("cudagraph_capture_sizes") or []
        if not sizes:
            raise UnsupportedError("the server captured no CUDA graphs", where=self.base_url, do="run it on a GPU")
        return tuple(sorted(answers.ids(sizes)))

    def prefill_budget(self) -> int:
        """Prompt tokens of one step where prefill is chunked. Raises UnsupportedError where it is not, or not known."""
        config = (self.server_info().get("vllm_config") or {}).get("scheduler_config") or {}
        if not config.get("enable_chunked_prefill") or not config.get("max_num_batched_tokens"):
            raise UnsupportedError("the server does not chunk prefill", where=self.base_url)
        return int(config["max_num_batched_tokens"])

    def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Token ids of `text` by the server's own tokenizer."""
        body = {"model": self.model, "prompt": text, "content": text, "add_special_tokens": special}
        answer = self._post_json("/tokenize", body)
        return answers.ids(answer.get("tokens"))

    def tokenize_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> tuple[int, ...]:
        """Token ids of a conversation after the chat template."""
        body = {"model": self.model, "messages": list(messages), "add_generation_prompt": True, **options}
        ids = answers.ids(self._post_json("/tokenize", body).get("tokens"))
        if not ids:
            raise UnsupportedError("the server does not tokenise conversations", where=self.base_url)
        return ids

    def ask_one_token(self) -> None:
        """Sign of life: one token, without logprobs, since NaN in them is for the checks to find.

        Raises ServerError if there is none.
        """
        body = {"model": self.model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        answers.first_choice(self._post_json("/v1/completions", body), self.base_url)

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
        choice = answers.first_choice(self._post_json("/v1/completions", body), self.base_url)
        return answers.completion(name, choice, prompt)

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
        return answers.chat(name, answer, answers.first_choice(answer, self.base_url))

    def converse(self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int, **options: Any) -> dict[str, Any]:
        """The whole answer of /v1/chat/completions at temperature 0, for what parsers make of it."""
        body = {"model": self.model, "messages": list(messages), "max_tokens": max_tokens, "temperature": 0, **options}
        return self._post_json("/v1/chat/completions", body)

    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of one streamed answer at temperature 0, as they come."""
        whole = {"model": self.model, "temperature": 0, "stream": True, **body}
        with self._failures_told(path), self._http.stream("POST", path, json=whole) as response:
            if response.is_error:
                response.read()
            self._refuse_failure(response, path)
            for line in response.iter_lines():
                data = line.removeprefix("data:").strip()
                if line.startswith("data:") and data != "[DONE]":
                    yield msgspec.json.decode(data, type=dict[str, Any])

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
        choice = answers.first_choice(self._post_json("/v1/completions", body), self.base_url)
        positions = choice.get("prompt_logprobs")
        if not positions:
            raise UnsupportedError(
                "the server gives no prompt_logprobs", where=self.base_url, do="check it through vLLM"
            )
        return answers.scores(name, prompt_ids, positions)

    def collective_rpc(self, method: str, *args: str, limit_s: float = REQUEST_LIMIT_S) -> list[Any]:
        """Call a method of the worker extension on every rank; one result a rank (developer route)."""
        answer = self._post_json("/collective_rpc", {"method": method, "args": list(args), "timeout": limit_s})
        return list(answer.get("results") or [])

    def post(self, path: str, *, limit_s: float = REQUEST_LIMIT_S) -> None:
        """POST without a body, as /start_profile and /stop_profile want it."""
        self._request("POST", path, timeout=limit_s)

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
        with self._failures_told(path):
            response = self._http.request(method, path, **options)
        self._refuse_failure(response, path)
        return response

    @contextmanager
    def _failures_told(self, path: str) -> Iterator[None]:
        """What httpx and the decoder raise, as ServerError."""
        try:
            yield
        except httpx.TimeoutException:
            raise ServerError(
                "the server did not answer in time", where=self.base_url + path, do="a worker may hang: read its log"
            ) from None
        except httpx.HTTPError as error:
            raise ServerError(
                f"the server cannot be reached: {error}", where=self.base_url + path, do="check that it runs"
            ) from None
        except msgspec.MsgspecError as error:
            raise ServerError(
                f"a chunk of the answer is no JSON object: {error}", where=self.base_url + path, do="read its log"
            ) from None

    def _refuse_failure(self, response: httpx.Response, path: str) -> None:
        if response.status_code in (404, 405, 501):
            raise UnsupportedError(f"the server has no {path}", where=self.base_url, do="check it through vLLM")
        if response.is_error:
            raise ServerError(
                f"HTTP {response.status_code}: {response.text[:300]}", where=self.base_url + path, do="read its log"
            )
