"""Cut, half-written, empty, foreign and hostile traces: an error that says what and where, never records."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glm5check.errors import TraceError
from glm5check.trace import events as events_module
from glm5check.trace.events import EventReader
from glm5check.trace.profile import read_profile
from glm5check.trace.recording import read_ranks, read_recording
from glm5check.trace.steps import read_rank


def kernel(**fields: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.0, "dur": 1.0, "args": {"correlation": 1}}
    return {**event, **fields}


@pytest.mark.parametrize("kept", [0.001, 0.3, 0.6, 0.99, 0.9999])
@pytest.mark.parametrize("packed", [True, False])
def test_cut(trace_text: Callable[..., bytes], tmp_path: Path, kept: float, packed: bool) -> None:
    text = trace_text("full")
    whole = gzip.compress(text, 1) if packed else text
    path = tmp_path / "rank0.pt.trace.json"
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(TraceError, match=r"cut|malformed|no array") as caught:
        read_rank(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("missing", [1, 2, 3, 5, 8, 30])
def test_last_bytes_missing(trace_text: Callable[..., bytes], tmp_path: Path, missing: int) -> None:
    path = tmp_path / "rank0.pt.trace.json"
    path.write_bytes(trace_text("full").rstrip()[:-missing])
    with pytest.raises(TraceError, match="cut or malformed"):
        read_rank(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b"{}", "no array `traceEvents`", id="no events key"),
        pytest.param(b"\x00" * 4096, "no array", id="zeros"),
        pytest.param(b"\x1f\x8b" + b"junk" * 40, "compressed file", id="not gzip after all"),
        pytest.param(gzip.compress(b""), "empty", id="empty gzip"),
        pytest.param(b'[{"ph": "X"}]', "no array", id="bare array"),
        pytest.param(b'{"a": "\\"traceEvents\\": [", "b": 1}', "no array", id="key only inside a string"),
        pytest.param(b'{"traceEvents": {"a": 1}}', "no array", id="events are an object"),
        pytest.param(b'{"traceEvents": [1, 2]}', "malformed", id="events are numbers"),
        pytest.param(b'{"traceEvents": [' + b"[" * 100_000, "malformed", id="deep nesting"),
        pytest.param(b'{"traceEvents": [{"args":' + b'{"a":' * 100_000, "malformed", id="deep arguments"),
        pytest.param(b'{"traceEvents": [{"name": "\xff\xfe"}]}', "malformed", id="not UTF-8"),
        pytest.param(b'{"traceEvents": [{"ts": "soon"}]}', "malformed", id="time is text"),
        pytest.param(b'{"traceEvents": [], "traceEvents": 3}', "malformed", id="two event keys"),
        pytest.param(b'{"traceEvents": []} {"traceEvents": []}', "malformed", id="two documents"),
        pytest.param(b'{"distributedInfo": {"rank": "x"}, "traceEvents": []}', "not a profiler's", id="odd header"),
    ],
)
def test_not_a_trace(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rank0.pt.trace.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        read_rank(path)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"dur": -1.0}, id="negative duration"),
        pytest.param({"ts": 1e999}, id="infinite start"),
        pytest.param({"args": [1]}, id="arguments are a list"),
        pytest.param({"args": {"correlation": "one"}}, id="correlation is text"),
        pytest.param({"args": {"correlation": 1, "graph node id": [2]}}, id="node id is a list"),
    ],
)
def test_impossible_kernels(write_trace: Callable[..., Path], fields: dict[str, Any]) -> None:
    path = write_trace([kernel(**fields)])
    path.write_text(path.read_text().replace("Infinity", "1e999"))
    with pytest.raises(TraceError, match=r"microseconds|arguments|out of range"):
        read_rank(path)


def test_no_border_between_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One event of endless size is refused before it fills the memory."""
    monkeypatch.setattr(events_module, "_MAX_EVENT", 1 << 16)
    monkeypatch.setattr(events_module, "_CHUNK", 1 << 12)
    path = tmp_path / "rank0.pt.trace.json"
    path.write_bytes(b'{"traceEvents": [{"name": "' + b"a" * (1 << 20) + b'"}]}')
    with pytest.raises(TraceError, match="no border between events"):
        read_rank(path)


def test_endless_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "_MAX_TEXT", 1 << 20)
    path = tmp_path / "rank0.pt.trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b'{"name": "a"}, ' * 200_000 + b"{}]}"))
    with pytest.raises(TraceError, match="GiB of text"):
        read_rank(path)


def test_control_characters_in_names_are_read(write_trace: Callable[..., Path]) -> None:
    """Kineto writes kernel names as they come; JSON forbids what some of them hold."""
    path = write_trace([kernel(name="left right")])
    path.write_bytes(path.read_bytes().replace(b"left right", b"left\x07right"))
    assert [found.name for found in read_profile(path).kernels] == ["left right"]


def test_missing_and_doubled_files(write_trace: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_recording([tmp_path / "nowhere"])
    with pytest.raises(TraceError, match="cannot be read"):
        read_rank(tmp_path / "nowhere")
    path = write_trace([kernel()], rank=3)
    with pytest.raises(TraceError, match="both of rank 3"):
        read_ranks([path, path])


def test_whose_trace_is_it(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text('{"traceEvents": []}')
    with pytest.raises(TraceError, match="which rank"):
        read_rank(path)


_texts = st.text(st.sampled_from('a{}[],:"\\ é'), max_size=6) | st.just('}, {"ph": "X"}, {')
_inner = st.lists(st.dictionaries(_texts, _texts | st.integers(0, 9), max_size=3), max_size=3)
_events = st.lists(
    st.fixed_dictionaries(
        {"name": _texts, "cat": st.sampled_from(["kernel", "cpu_op"])},
        optional={"args": st.dictionaries(_texts, _inner, max_size=3)},
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=60)
@given(events=_events, indent=st.sampled_from([None, 0, 2]), chunk=st.integers(1, 200))
def test_pieces_never_change_the_events(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], indent: int | None, chunk: int
) -> None:
    """Wherever the text is cut, also inside strings that look like borders, the same events come out."""
    path = tmp_path_factory.getbasetemp() / "pieces.json"
    path.write_text(json.dumps({"traceEvents": events, "tail": [{"a": 1}, {"b": 2}]}, indent=indent))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events_module, "_CHUNK", chunk)
        read = [event for piece in EventReader(path) for event in piece]
    assert [(event.name, event.cat) for event in read] == [(e["name"], e["cat"]) for e in events]


def test_order_of_events_means_nothing(write_trace: Callable[..., Path], trace_text: Callable[..., bytes]) -> None:
    """Chrome's trace format gives the order of events no meaning, and neither do we: times and ids do."""
    whole = json.loads(trace_text("full"))
    events = whole.pop("traceEvents")
    straight = read_rank(write_trace(events, **whole))
    backwards = read_rank(write_trace(events[::-1], **whole))
    assert straight == backwards
