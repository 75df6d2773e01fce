"""Which events of a trace become which records, what is left out, and what is refused in which words."""

from __future__ import annotations

import gzip
import json

import pytest

from glm5check.errors import TraceError
from glm5check.trace import events as events_module
from glm5check.trace import profile as profile_module
from glm5check.trace.events import EventReader
from glm5check.trace.profile import Annotation, Kernel, Launch, read_profile

ADVICE = "profile again, and copy the file only after /stop_profile has returned"
AS_WRITTEN = "give the files as the torch profiler wrote them"


def event(cat, name, ts=1.5, dur=2.0, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


def refusal(path):
    with pytest.raises(TraceError) as caught:
        read_profile(path)
    assert caught.value.where == str(path)
    return caught.value.what, caught.value.do


@pytest.mark.parametrize("cat", ["cuda_runtime", "cuda_driver"])
@pytest.mark.parametrize(
    ("name", "is_graph"),
    [
        ("cudaGraphLaunch", True),
        ("cuGraphLaunch_ptsz", True),
        ("cudaLaunchKernel", False),
        ("cuLaunchKernel", False),
        ("cudaLaunchKernelExC", False),
        ("cudaLaunchCooperativeKernel", False),
    ],
)
def test_launches(write_trace, cat, name, is_graph):
    profile = read_profile(write_trace([event(cat, name, correlation=7), event("cpu_op", name, correlation=8)]))
    assert profile.launches == [Launch(1.5, 7, is_graph)]
    assert (profile.kernels, profile.annotations) == ([], [])


@pytest.mark.parametrize("name", ["cudaMemcpyAsync", "my cudaLaunchKernel", "cudaGraphLaunchX"])
def test_other_calls_launch_nothing(write_trace, name):
    assert read_profile(write_trace([event("cuda_runtime", name, correlation=7)])).launches == []


def test_a_launch_without_an_id_cannot_be_joined(write_trace):
    assert read_profile(write_trace([event("cuda_runtime", "cudaGraphLaunch")])).launches == []


def test_kernels_with_and_without_ids(write_trace):
    path = write_trace(
        [event("kernel", "k", correlation=7, **{"graph node id": 5}), event("kernel", "k", ts=9), event("kernel", "l")]
    )
    profile = read_profile(path)
    assert profile.kernels[:2] == [Kernel("k", 1.5, 2.0, 7, 5), Kernel("k", 9.0, 2.0, -1, None)]
    assert (profile.kernels[0].end_us, profile.kernels[2].name) == (3.5, "l")
    assert profile.kernels[0].name is profile.kernels[1].name
    assert (profile.path, profile.header.distributed.rank) == (path, 0)
    assert profile.text_bytes == path.stat().st_size


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("execute_context_1(20)_generation_3(7)", (1, 3, 7)),
        ("execute_5_context_0(0)_generation_3(sq4sk5)", (0, 3, 4)),
        ("execute_context_12(20,8)_generation_0(0) and more", (12, 0, 0)),
        ("execute_context_1234567890123(1)_generation_9999999999(88888888888)", (123456789, 999999999, 888888888)),
    ],
)
def test_marks_of_steps(write_trace, name, requests):
    profile = read_profile(write_trace([event("user_annotation", name), event("user_annotation", "other")]))
    assert profile.annotations == [Annotation(1.5, 2.0, *requests)]


@pytest.mark.parametrize(
    ("one", "what"),
    [
        (event("kernel", "k" * 90, dur=-1.0, correlation=1), f"`{'k' * 80}` starts at 1.5 and lasts -1.0 microseconds"),
        (
            event("cuda_runtime", "cudaGraphLaunch", dur=-2),
            "`cudaGraphLaunch` starts at 1.5 and lasts -2.0 microseconds",
        ),
        (
            event("user_annotation", "execute_context_0(0)_generation_1(1)", dur=-2),
            "`execute_context_0(0)_generation_1(1)` starts at 1.5 and lasts -2.0 microseconds",
        ),
    ],
)
def test_times_that_are_none(write_trace, one, what):
    assert refusal(write_trace([one])) == (what, AS_WRITTEN)


def test_a_kernel_may_take_no_time(write_trace):
    assert read_profile(write_trace([event("kernel", "k", dur=0)])).kernels[0].duration_us == 0.0


def test_arguments_that_are_none(write_trace):
    what, do = refusal(write_trace([event("kernel", "k" * 90, correlation="one")]))
    assert what.startswith(f"the arguments of `{'k' * 80}` are not a profiler's (")
    assert do == AS_WRITTEN


def test_too_many_records_are_refused_beyond_their_bound(write_trace, monkeypatch):
    path = write_trace([event("kernel", "k"), event("cuda_runtime", "cudaLaunchKernel", correlation=1)])
    monkeypatch.setattr(profile_module, "_MAX_RECORDS", 2)
    assert len(read_profile(path).kernels) == 1
    monkeypatch.setattr(profile_module, "_MAX_RECORDS", 1)
    assert refusal(path) == ("more than 1 kernels and launches", "profile 10 to 30 decode steps, not more")
    many = write_trace([event("kernel", "k")] * 1201, rank=1)
    monkeypatch.setattr(profile_module, "_MAX_RECORDS", 1200)
    assert refusal(many)[0] == "more than 1,200 kernels and launches"


@pytest.fixture
def write(tmp_path):
    def make(content, name="rank0.pt.trace.json"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return make


NOT_ONE = "give the *.pt.trace.json[.gz] files that the torch profiler wrote, one a rank"


@pytest.mark.parametrize(
    ("content", "what", "do"),
    [
        (b"", "the file is empty", NOT_ONE),
        (b"{}", "not a profiler trace: there is no array `traceEvents` in it", NOT_ONE),
        (b"\x1f\x8bjunk", "the compressed file is cut or damaged (", ADVICE),
        (gzip.compress(b'{"traceEvents": []}')[:-9], "the compressed file is cut or damaged (", ADVICE),
        (b'{"traceEvents": [{"name": "a"}', "the JSON is cut or malformed after 30 bytes (", ADVICE),
        (b'{"distributedInfo": 3, "traceEvents": []}', "the header is not a profiler's (", ADVICE),
        (
            b'{"traceEvents": [{"name": "a"}, {"name": 3}, {"name": "b"}]}',
            "an event has a field of a wrong type (",
            ADVICE,
        ),
    ],
)
def test_files_that_are_no_traces(write, content, what, do):
    said, advice = refusal(write(content))
    assert said.startswith(what)
    assert advice == do


def test_a_missing_file(tmp_path):
    what, do = refusal(tmp_path / "nowhere")
    assert (what, do) == ("the file cannot be read (No such file or directory)", "check the path")


def test_the_header_may_stand_before_or_after_the_events(write):
    sides = {
        "distributedInfo": {"rank": 1, "world_size": 2},
        "deviceProperties": [{"id": 0, "name": "H200"}],
        "vllm_version": "0.24",
    }
    before = json.dumps({**sides, "traceEvents": []}).encode()
    after = json.dumps({"traceEvents": [], **sides}).encode()
    for content in (before, after):
        header = read_profile(write(content)).header
        assert (header.distributed.rank, header.distributed.world_size) == (1, 2)
        assert ([device.name for device in header.devices], header.vllm_version) == (["H200"], "0.24")
    nobody = read_profile(write(b'{"traceEvents": []}')).header
    assert (nobody.distributed, nobody.devices, nobody.vllm_version) == (None, [], "")


def test_a_key_within_a_string_begins_no_events(write):
    content = b'{"note": "\\"traceEvents\\": [", "traceEvents": [{"name": "a", "cat": "kernel", "args": {}}]}'
    assert [one.name for one in read_profile(write(content)).kernels] == ["a"]


def test_a_key_within_another_object_begins_no_events(write):
    content = b'{"note": {"traceEvents": [1]}, "traceEvents": [{"name": "a", "cat": "kernel", "args": {}}]}'
    assert [one.name for one in read_profile(write(content)).kernels] == ["a"]


def test_a_reader_that_has_read_nothing_knows_nothing(write, monkeypatch):
    reader = EventReader(write(b'{"traceEvents": []}'))
    assert (reader.header.distributed, reader.header.devices, reader.text_bytes) == (None, [], 0)
    monkeypatch.setattr(events_module, "_MAX_TEXT", 3 << 30)
    reader.text_bytes = 3 << 30
    with pytest.raises(TraceError, match=r"^more than 3 GiB of text"):
        list(reader)


def test_a_header_is_looked_for_up_to_its_bound(write, monkeypatch):
    monkeypatch.setattr(events_module, "_CHUNK", 16)
    late = b'{"a": "' + b"x" * 100 + b'", "traceEvents": []}'
    monkeypatch.setattr(events_module, "_MAX_HEADER", 128)
    assert read_profile(write(late)).kernels == []
    monkeypatch.setattr(events_module, "_MAX_HEADER", 64)
    assert refusal(write(late))[0] == "not a profiler trace: there is no array `traceEvents` in it"


def test_text_and_single_events_are_bounded(write, monkeypatch):
    content = b'{"traceEvents": [{"name": "' + b"a" * 2000 + b'"}]}'
    monkeypatch.setattr(events_module, "_CHUNK", 100)
    monkeypatch.setattr(events_module, "_MAX_EVENT", 2 * len(content))
    assert len(list(EventReader(write(content)))[-1]) == 1
    monkeypatch.setattr(events_module, "_MAX_EVENT", 1000)
    what, do = refusal(write(content))
    assert what.startswith("no border between events within 1,0")
    assert what.endswith(" bytes")
    assert do == ADVICE
    monkeypatch.setattr(events_module, "_MAX_EVENT", 1 << 20)
    monkeypatch.setattr(events_module, "_MAX_TEXT", len(content))
    assert read_profile(write(content)).text_bytes == len(content)
    monkeypatch.setattr(events_module, "_MAX_TEXT", len(content) - 1)
    assert refusal(write(content)) == ("more than 0 GiB of text", "profile 10 to 30 decode steps, not more")


def test_events_come_out_in_pieces_as_soon_as_there_is_a_border(write, monkeypatch):
    monkeypatch.setattr(events_module, "_CHUNK", 64)
    content = b'{"traceEvents": [' + b", ".join(b'{"name": "event%03d"}' % i for i in range(30)) + b"]}"
    reader = EventReader(write(content))
    pieces = [[one.name for one in piece] for piece in reader]
    assert [name for piece in pieces for name in piece] == [f"event{i:03}" for i in range(30)]
    assert len(pieces) > 8
    assert reader.text_bytes == len(content)
    assert reader.header.distributed is None
