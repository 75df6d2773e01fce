"""A server that only pretends: it streams tokens at a set pace and counts them, like vLLM's completions API.

What is not streamed is answered at once, so that the suite can attach to it.

    python -m glm5check.serving.stub --step-ms 5 --stall-every 50 --stall-ms 40

It has no model, so it is exact about time, and it can misbehave on purpose: slow steps, stalls, dropped or short
answers, counters that lie. The throughput checks are tested against it, and so is how fast the load client is.
All streams share one step, as in a batching engine: each step sends one chunk to every open stream.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

MODEL: Final = "stub"
VERSION: Final = "0.0.0"
"""What it says where vLLM says its version."""
_EVENT: Final = '{"id":"stub","object":"text_completion","created":0,"model":"stub","choices":[%s]%s}'
START_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How the stub answers. Times in milliseconds; `..._every` counts from 1 and 0 means never.

    `stall_every` is in steps; `drop_every` (the connection is cut in the middle) and `short_every` (half the tokens, as
    if done) are in requests. `counter_factor` multiplies what `/metrics` says was generated, `chunk` is tokens a chunk.
    """

    step_ms: float = 5.0
    prefill_ms: float = 0.0
    stall_every: int = 0
    stall_ms: float = 0.0
    drop_every: int = 0
    short_every: int = 0
    counter_factor: float = 1.0
    chunk: int = 1


@contextlib.contextmanager
def running(behaviour: Behaviour) -> Iterator[str]:
    """Start the stub in its own process on a free port; yields its base URL and ends it afterwards."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(behaviour).items()]
    command = [sys.executable, "-m", "glm5check.serving.stub", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(START_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()


@dataclass(slots=True)
class _Stream:
    transport: asyncio.Transport
    wanted: int
    prompt: int
    stop_at: int
    cut: bool
    sent: int = 0


class _Engine:
    """Sends one chunk a step to every open stream, and counts."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.streams: list[_Stream] = []
        self.started = time.time()
        self.requests = self.finished = self.generated = self.prompted = self.steps = 0
        choice = json.dumps({"index": 0, "text": " x" * behaviour.chunk, "token_ids": [7] * behaviour.chunk})
        self.event = _frame(_EVENT % (choice, ""))

    def add(self, transport: asyncio.Transport, body: dict[str, Any]) -> None:
        self.requests += 1
        wanted, prompt = int(body.get("max_tokens", 16)), len(body.get("prompt", ()))
        cut = bool(self.behaviour.drop_every) and self.requests % self.behaviour.drop_every == 0
        short = bool(self.behaviour.short_every) and self.requests % self.behaviour.short_every == 0
        stop_at = wanted // 2 if cut or short else wanted
        transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        stream = _Stream(transport, wanted, prompt, stop_at, cut)
        self.prompted += prompt
        asyncio.get_running_loop().call_later(self.behaviour.prefill_ms / 1000, self.streams.append, stream)

    async def run(self) -> None:
        due = time.perf_counter()
        while True:
            stalls = bool(self.behaviour.stall_every) and self.steps % self.behaviour.stall_every == 1
            due += (self.behaviour.step_ms + self.behaviour.stall_ms * stalls) / 1000
            now = time.perf_counter()
            # A step that came late, as on a busy machine, may be made up for by the next one, but not by more.
            due = max(due, now - self.behaviour.step_ms / 1000)
            await asyncio.sleep(max(due - now, 0))
            if not self.streams:
                due = time.perf_counter()
                await asyncio.sleep(0.0005)
                continue
            self.steps += 1
            for stream in list(self.streams):
                self._advance(stream)

    def _advance(self, stream: _Stream) -> None:
        if stream.transport.is_closing():
            self.streams.remove(stream)
            return
        size = min(self.behaviour.chunk, stream.stop_at - stream.sent)
        if size == self.behaviour.chunk:
            stream.transport.write(self.event)
        elif size:
            choice = json.dumps({"index": 0, "text": " x" * size, "token_ids": [7] * size})
            stream.transport.write(_frame(_EVENT % (choice, "")))
        stream.sent += size
        self.generated += size
        if stream.sent >= stream.stop_at:
            self._finish(stream)

    def _finish(self, stream: _Stream) -> None:
        self.streams.remove(stream)
        if not stream.cut:
            usage = {"prompt_tokens": stream.prompt, "completion_tokens": stream.sent}
            stream.transport.write(
                _frame(_EVENT % ("", ',"usage":' + json.dumps(usage))) + _frame("[DONE]") + b"0\r\n\r\n"
            )
            self.finished += 1
        stream.transport.close()

    def metrics(self) -> str:
        label = f'{{engine="0",model_name="{MODEL}"}}'
        counters = {
            "vllm:generation_tokens_total": self.generated * self.behaviour.counter_factor,
            "vllm:prompt_tokens_total": self.prompted,
            "vllm:request_success_total": self.finished,
        }
        lines = [f"# TYPE {name} counter\n{name}{label} {float(value)}" for name, value in counters.items()]
        return "\n".join(
            [*lines, "# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {self.started}\n"]
        )


class _Connection(asyncio.Protocol):
    """Just enough HTTP for our own clients: one request at a time, body by Content-Length."""

    def __init__(self, engine: _Engine) -> None:
        self.engine = engine
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pending += data
        head, separator, body = self.pending.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        if not separator or len(body) < length:
            return
        self.pending = body[length:]
        path = head.split(b" ", 2)[1].decode()
        if path == "/v1/completions":
            self._complete(json.loads(body[:length]))
        elif path == "/metrics":
            self._answer(self.engine.metrics(), "text/plain; version=0.0.4")
        elif path == "/v1/models":
            self._answer_json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        elif path == "/version":
            self._answer_json({"version": VERSION})
        else:
            self._answer_json({})

    def _complete(self, body: dict[str, Any]) -> None:
        if body.get("stream"):
            self.engine.add(self.transport, body)
        else:
            self._answer_json({"choices": [{"index": 0, "text": " x", "finish_reason": "length"}]})

    def _answer_json(self, answer: dict[str, Any]) -> None:
        self._answer(json.dumps(answer), "application/json")

    def _answer(self, text: str, kind: str) -> None:
        body = text.encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


def _frame(event: str) -> bytes:
    data = f"data: {event}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _serve(behaviour: Behaviour) -> None:
    engine = _Engine(behaviour)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(engine), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await engine.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for option in fields(Behaviour):
        kind = type(option.default)
        parser.add_argument(f"--{option.name.replace('_', '-')}", type=kind, default=option.default)
    asyncio.run(_serve(Behaviour(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
