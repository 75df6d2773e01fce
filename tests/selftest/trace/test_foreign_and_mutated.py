"""Traces of other programs, and recorded traces with random damage: never a pass that should not be, never a crash."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from glm5check.cli.trace import trace
from glm5check.errors import TraceError
from glm5check.trace.steps import read_rank

DAMAGE = [b"null", b"-1", b"1e400", b"9" * 400, b'"x"', b"{}", b"[]", b"\x00", b"\xff", b'"', b"\\", b"}", b"{", b","]


@pytest.fixture
def small(trace_text: Callable[..., bytes], write_trace: Callable[..., Path]) -> bytes:
    """A recorded trace cut down to what is looked at: launches, steps, collectives and cache writes."""
    whole = json.loads(trace_text("full"))
    kept = [
        event
        for event in whole.pop("traceEvents")
        if event["name"].startswith(("execute_", "nccl", "cudaGraphLaunch")) or "concat_and_cache" in event["name"]
    ]
    return write_trace(kept, **whole).read_bytes()


def test_random_damage(small: bytes, tmp_path: Path) -> None:
    """Replaced, deleted and inserted bytes: the file reads, or there is a TraceError; nothing else ever comes out."""
    chance = random.Random(5)
    path = tmp_path / "rank0.pt.trace.json"
    outcomes = {"read": 0, "refused": 0}
    for _ in range(150):
        text = bytearray(small)
        for _ in range(chance.choice([1, 1, 3])):
            place = chance.randrange(len(text))
            length = chance.choice([0, 1, 3, 300])
            text[place : place + length] = chance.choice([*DAMAGE, bytes([chance.randrange(256)])])
        path.write_bytes(text)
        try:
            read_rank(path)
            outcomes["read"] += 1
        except TraceError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 50
    assert outcomes["read"] > 0


def test_a_training_trace(tmp_path: Path) -> None:
    """torch's profiler around a training step: a well-formed trace of something else, so no verdict."""
    path = tmp_path / "rank0.pt.trace.json"
    weights = torch.ones(8, 8, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        (torch.ones(2, 8) @ weights).sum().backward()
    profiler.export_chrome_trace(str(path))
    result = CliRunner().invoke(trace, [str(path), "--ranks", "1"])
    assert result.exit_code == 2
    assert "no vLLM decode step is marked in rank0.pt.trace.json" in result.output


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(
            [
                {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": 2,
                    "ts": 1.5,
                    "dur": 3.0,
                    "name": "fusion.1",
                    "args": {"hlo_module": "jit"},
                },
                {},
            ],
            id="XLA",
        ),
        pytest.param([{"ph": "B", "ts": 1, "cat": "node,node.fs", "name": "read", "args": None}], id="Node.js"),
        pytest.param([], id="no events"),
    ],
)
def test_traces_of_other_frameworks(write_trace: Callable[..., Path], events: list[dict[str, object]]) -> None:
    result = CliRunner().invoke(trace, [str(write_trace(events))])
    assert result.exit_code == 2
    assert "no vLLM decode step is marked" in result.output


def test_collectives_outside_of_any_step(trace_text: Callable[..., bytes], write_trace: Callable[..., Path]) -> None:
    """The same collectives in graphs, but without vLLM's step marks: they could be anything's."""
    whole = json.loads(trace_text("full"))
    events = [event for event in whole.pop("traceEvents") if not event["name"].startswith("execute_")]
    result = CliRunner().invoke(trace, [str(write_trace(events, **whole)), "--ranks", "1"])
    assert result.exit_code == 2
