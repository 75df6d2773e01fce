"""Decodes what the load client recorded: HTTP framing, server-sent events, completion chunks, one time a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import h11
import msgspec

from glm5check.serving.timing import RequestTiming


@dataclass(slots=True)
class Answer:
    """What came back for one request, undecoded: (time, bytes) of every read, times on the clock of `sent`."""

    index: int
    sent: float = 0.0
    reads: list[tuple[float, bytes]] = field(default_factory=list)
    error: str = ""


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


def decode(answer: Answer, *, input_tokens: int, output_tokens: int) -> RequestTiming:
    """Token times of one answer to a request for exactly `output_tokens` tokens.

    `input_tokens` is what was sent, for answers that end before the server said how many it read.
    """
    arrivals: list[float] = []
    chunks = 0
    usage: _Usage | None = None
    error = answer.error
    try:
        for when, chunk in _chunks(answer.reads):
            if chunk.error is not None:
                error = error or f"the server reports: {chunk.error}"
            for choice in chunk.choices[:1]:
                # A server that sends no ids streams one token a chunk; its usage then says whether that held.
                count = 1 if choice.token_ids is None else len(choice.token_ids)
                arrivals.extend([when - answer.sent] * count)
                chunks += count > 0
            usage = chunk.usage or usage
    except _BadAnswerError as bad:
        error = error or str(bad)
    return RequestTiming(
        index=answer.index,
        sent=answer.sent,
        arrivals=tuple(arrivals),
        input_tokens=usage.prompt_tokens if usage else input_tokens,
        output_tokens=len(arrivals),
        chunks=chunks,
        error=error or _incomplete(len(arrivals), usage, output_tokens),
    )


def _incomplete(streamed: int, usage: _Usage | None, wanted: int) -> str:
    if usage is None:
        return f"the stream ended after {streamed} of {wanted} tokens, without usage"
    if usage.completion_tokens != streamed:
        return f"{streamed} tokens were streamed but the usage says {usage.completion_tokens}"
    return "" if streamed == wanted else f"{streamed} tokens instead of {wanted}"


class _BadAnswerError(Exception):
    """The answer is no stream of completion chunks."""


def _chunks(reads: list[tuple[float, bytes]]) -> Iterator[tuple[float, _Chunk]]:
    """Decoded events with the time of the read that completed them."""
    decoder = msgspec.json.Decoder(_Chunk)
    pending = b""
    for when, payload in _payloads(reads):
        *events, pending = (pending + payload).split(b"\n\n")
        for event in events:
            data = event.strip().removeprefix(b"data:").strip()
            if not data or event.startswith(b":") or data == b"[DONE]":
                continue
            try:
                yield when, decoder.decode(data)
            except msgspec.DecodeError as error:
                raise _BadAnswerError(f"an event is not a completion chunk ({error}): {data[:120]!r}") from None


def _payloads(reads: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "-")]))
    connection.send(h11.EndOfMessage())
    for when, data in reads:
        try:
            connection.receive_data(data)
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Response) and event.status_code != 200:
                    raise _BadAnswerError(f"HTTP {event.status_code}: {data[-300:].decode(errors='replace')}")
                if isinstance(event, h11.Data):
                    yield when, bytes(event.data)
                if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                    return
        except h11.RemoteProtocolError as error:
            raise _BadAnswerError(f"the answer is no HTTP: {error}") from None
