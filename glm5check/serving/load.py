"""A load client that stays out of the way: it stamps bytes as they arrive and reads them when the run is over.

While a run lasts, each read costs one clock call and one list append; HTTP framing, server-sent events and JSON are
decoded afterwards. Each request has its own connection, opened before its clock starts, and the server closes it
(`Connection: close`), so the end of an answer needs no parsing either.

    run = run_load("http://127.0.0.1:8000", Load(model="glm5", concurrency=4, requests=16))
    summary(run)["output_throughput"]

Every request asks for exactly `output_tokens` tokens (`ignore_eos`). One that fails, or returns fewer or more, keeps
its place in the run with the reason in `error`.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import urlsplit

import h11
import uvloop

from glm5check.errors import OptionError
from glm5check.serving.address import Address
from glm5check.serving.stream import Answer, decode
from glm5check.serving.timing import LoadRun

MAX_ANSWER_BYTES: Final = 256 << 20
"""A longer answer is cut off and counts as failed; 1 KiB a token would still leave room for 250,000 tokens."""
CONNECT_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to send. Lengths are in tokens, `request_rate` in requests a second (infinite: as soon as a slot is free).

    Prompts are random token ids below `vocabulary`, from `seed`; the first `shared_prefix` of them are the same in
    every prompt. `warmup` requests of the same kind go first and are not counted. `body` is merged into every request.
    """

    model: str
    concurrency: int = 1
    requests: int = 1
    input_tokens: int = 32
    output_tokens: int = 64
    shared_prefix: int = 0
    request_rate: float = math.inf
    vocabulary: int = 512
    seed: int = 0
    warmup: int = 0
    timeout_s: float = 600.0
    body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = (self.concurrency, self.requests, self.input_tokens, self.output_tokens, self.vocabulary)
        if min(counts) < 1 or not 0 <= self.shared_prefix <= self.input_tokens or not self.request_rate > 0:
            raise OptionError(
                f"this load cannot be sent: {self}",
                do="counts and rates must be positive, the shared prefix no longer than the input",
            )

    def prompts(self) -> Iterator[list[int]]:
        """Token ids of warm-up and counted prompts, in order."""
        source = random.Random(self.seed)  # noqa: S311 - reproducible prompts, no secret
        prefix = [source.randrange(self.vocabulary) for _ in range(self.shared_prefix)]
        for _ in range(self.warmup + self.requests):
            yield prefix + [source.randrange(self.vocabulary) for _ in range(self.input_tokens - self.shared_prefix)]

    def gaps(self) -> Iterator[float]:
        """Seconds between sendings: exponential, so that arrivals are Poisson, or 0 at an infinite rate."""
        source = random.Random(self.seed + 1)  # noqa: S311
        while True:
            yield 0.0 if math.isinf(self.request_rate) else source.expovariate(self.request_rate)


class _Recorder(asyncio.Protocol):
    """Keeps (time, bytes) of every read until the server closes."""

    def __init__(self) -> None:
        self.reads: list[tuple[float, bytes]] = []
        self.size = 0
        self.closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.reads.append((time.perf_counter(), data))
        self.size += len(data)
        if self.size > MAX_ANSWER_BYTES and self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(exc)


def run_load(base_url: str, load: Load, *, api_key: str = "") -> LoadRun:
    """Send the load and wait for all of it. A server that is not there gives failed requests, not an exception."""
    return uvloop.run(_run(base_url, load, api_key))


async def _run(base_url: str, load: Load, api_key: str) -> LoadRun:
    prompts = list(load.prompts())
    target = _Target.parse(base_url, api_key)
    for prompt in prompts[: load.warmup]:
        await _send(target, load, -1, prompt)
    slots, gaps = asyncio.Semaphore(load.concurrency), load.gaps()

    async def one(index: int, prompt: list[int]) -> Answer:
        async with slots:
            return await _send(target, load, index, prompt)

    cpu = time.process_time()
    running = []
    for index, prompt in enumerate(prompts[load.warmup :]):
        if index:
            await asyncio.sleep(next(gaps))
        running.append(asyncio.create_task(one(index, prompt)))
    answers = await asyncio.gather(*running)
    cpu = time.process_time() - cpu
    return LoadRun(
        requests=tuple(
            decode(answer, input_tokens=load.input_tokens, output_tokens=load.output_tokens) for answer in answers
        ),
        concurrency=load.concurrency,
        client_cpu=cpu,
    )


@dataclass(frozen=True, slots=True)
class _Target:
    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None
    authorization: str

    @classmethod
    def parse(cls, base_url: str, api_key: str) -> _Target:
        address = Address.parse(base_url, api_key)
        url = urlsplit(address.url)
        tls = ssl.create_default_context() if url.scheme == "https" else None
        port = url.port or (443 if tls else 80)
        return cls(url.hostname or "", port, f"{url.path}/v1/completions", tls, address.authorization)

    def request(self, body: bytes) -> bytes:
        headers = [
            ("Host", f"{self.host}:{self.port}"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        if self.authorization:
            headers.append(("Authorization", self.authorization))
        connection = h11.Connection(h11.CLIENT)
        head = connection.send(h11.Request(method="POST", target=self.path, headers=headers))
        return (head or b"") + body


async def _send(target: _Target, load: Load, index: int, prompt: list[int]) -> Answer:
    answer = Answer(index, time.perf_counter())
    message = target.request(json.dumps(_body(load, prompt)).encode())
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            loop = asyncio.get_running_loop()
            transport, recorder = await loop.create_connection(_Recorder, target.host, target.port, ssl=target.tls)
    except (OSError, TimeoutError) as error:
        answer.error = f"no connection: {error or 'timed out'}"
        return answer
    try:
        answer.sent, answer.reads = time.perf_counter(), recorder.reads
        transport.write(message)
        async with asyncio.timeout(load.timeout_s):
            lost = await recorder.closed
        if lost is not None:
            answer.error = f"the connection broke: {lost}"
    except TimeoutError:
        answer.error = f"no complete answer after {load.timeout_s:g} s"
    finally:
        transport.close()
    return answer


def _body(load: Load, prompt: list[int]) -> dict[str, Any]:
    return {
        "model": load.model,
        "prompt": prompt,
        "max_tokens": load.output_tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        **load.body,
    }
