"""Reading a trace beats decoding its JSON, in time and in memory. Ratios of one run, so that the machine cancels out.

HolisticTraceAnalysis 0.5, which is no dependency, took 14 to 16 times as long and 35 times the memory for one file.
"""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import DATA
from fixtures.stopwatch import best_of
from glm5check.trace.steps import read_rank


@pytest.fixture
def largest(tmp_path: Path) -> Path:
    """The largest recorded trace, uncompressed."""
    path = tmp_path / "rank0.pt.trace.json"
    path.write_bytes(gzip.decompress((DATA / "graphs" / "eager" / "rank0.pt.trace.json.gz").read_bytes()))
    return path


def test_faster_than_decoding_the_json(largest: Path, record_property: Callable[[str, object], None]) -> None:
    """Steps and all, it takes less time than `json.loads` of the same text alone (measured: about half)."""
    ours, plain = best_of(5, lambda: read_rank(largest), lambda: json.loads(largest.read_bytes()))
    record_property("seconds", ours)
    record_property("times_json_loads", plain / ours)
    print(
        f"{ours * 1e3:.0f} ms for {largest.stat().st_size / 1e6:.1f} MB, {plain / ours:.2f} times as fast as json.loads"
    )
    assert ours < plain


def test_memory_is_bounded_by_what_is_kept(largest: Path) -> None:
    """The most that is allocated at any time is below half of the text, where twice the text is the bound."""
    tracemalloc.start()
    try:
        read_rank(largest)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    print(f"peak {peak / 1e6:.1f} MB for {largest.stat().st_size / 1e6:.1f} MB of text")
    assert peak < largest.stat().st_size / 2
