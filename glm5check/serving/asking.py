"""Requests whose failure is a result: errors stay in the records, many can be asked at once, each has a time limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from glm5check.errors import ServerError, UnsupportedError
from glm5check.records import Generation, Scores
from glm5check.serving.client import WHOLE_VOCABULARY, Client


def complete(client: Client, name: str, prompt: str | Sequence[int], **options: Any) -> Generation:
    """`client.complete`, with a failure in the record's `error`.

    What the server does not offer is no failure: UnsupportedError is raised.
    """
    try:
        return client.complete(name, prompt, **options)
    except UnsupportedError:
        raise
    except ServerError as error:
        given = () if isinstance(prompt, str) else tuple(prompt)
        return Generation(prompt=name, prompt_ids=given, error=error.what)


def chat(client: Client, name: str, text: str, **options: Any) -> Generation:
    """`client.chat`, with a failure in the record's `error`."""
    try:
        return client.chat(name, text, **options)
    except UnsupportedError:
        raise
    except ServerError as error:
        return Generation(prompt=name, error=error.what)


def score(client: Client, name: str, prompt_ids: Sequence[int], *, top: int = WHOLE_VOCABULARY) -> Scores:
    """`client.score`, with a failure in the record's `error`."""
    try:
        return client.score(name, prompt_ids, top=top)
    except UnsupportedError:
        raise
    except ServerError as error:
        return Scores(prompt=name, prompt_ids=tuple(prompt_ids), tokens=(), error=error.what)


def together(requests: Sequence[Callable[[], Generation]]) -> list[Generation]:
    """Send all requests in the same moment, and return their answers in order."""
    start = Barrier(len(requests))

    def send(request: Callable[[], Generation]) -> Generation:
        start.wait()
        return request()

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(send, requests))


def in_flight(requests: Sequence[Callable[[], Generation]], slots: int) -> list[Generation]:
    """Send the requests in order with at most `slots` of them unanswered, and return their answers in order."""
    with ThreadPoolExecutor(slots) as pool:
        return list(pool.map(lambda request: request(), requests))
