"""The recordings, read once, and a way to write an edited trace."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from fixtures import DATA

GRAPHS = DATA / "graphs"


@lru_cache(maxsize=4)
def _text(name: str, rank: int) -> bytes:
    return gzip.decompress((GRAPHS / name / f"rank{rank}.pt.trace.json.gz").read_bytes())


@pytest.fixture
def trace_text() -> Callable[..., bytes]:
    """`trace_text("full", rank=0)`: the JSON text of a recorded trace."""
    return lambda name, rank=0: _text(name, rank)


@pytest.fixture
def write_trace(tmp_path: Path) -> Callable[..., Path]:
    """`write_trace(events, rank=0, **header)`: a trace file of these events, as the profiler would write it."""

    def write(events: list[dict[str, Any]], rank: int = 0, indent: int | None = 2, **header: Any) -> Path:
        whole = {
            "schemaVersion": 1,
            "distributedInfo": {"rank": rank, "world_size": 1},
            **header,
            "traceEvents": events,
        }
        path = tmp_path / f"rank{rank}.pt.trace.json"
        path.write_text(json.dumps({**whole, "traceName": "a trace"}, indent=indent))
        return path

    return write
