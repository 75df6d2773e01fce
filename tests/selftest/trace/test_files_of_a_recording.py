"""Which files of a directory belong to a recording, and which mixtures are refused."""

from __future__ import annotations

import gzip
import json

import pytest

from glm5check.errors import TraceError
from glm5check.trace import recording
from glm5check.trace.recording import find_traces, read_ranks, read_recording


@pytest.fixture
def place(tmp_path):
    """`place("name", "text")`: a file of the recording's directory; a trace of a rank if only a name is given."""

    def write(name, text=None):
        rank = int(name.partition("rank")[2][:1] or 0) if "rank" in name else 0
        data = (text or json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": []})).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return write


def test_traces_of_a_directory_and_files_that_are_named(place, tmp_path):
    names = ["dp0_rank1.1.pt.trace.json.gz", "rank0.pt.trace.json", "other.bin"]
    for name in [*names, "rank0_async_llm.pt.trace.json", "x.pt.trace.json", "rank2.json", "rank3.pt.trace.json.bak"]:
        place(name)
    assert [path.name for path in find_traces([tmp_path])] == names[:2]
    assert find_traces([tmp_path / "other.bin", tmp_path]) == [tmp_path / name for name in ("other.bin", *names[:2])]
    assert find_traces([]) == []


def test_everything_of_a_directory_is_read(place, tmp_path):
    place("rank1.pt.trace.json")
    place("rank0.pt.trace.json.gz")
    place("server.log", "INFO 11-29 13:23:47 Using V2 Model Runner\n")
    place("nccl.0.log", "x NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0\n")
    place("nccl.1.log.gz", "x NCCL INFO ncclCommInitRank comm 0x1 rank 1 nranks 2 cudaDev 0\n")
    place("server_info.json.gz", '{"vllm_config": {}, "system_env": {"vllm_version": "0.24.0"}}')
    place("metrics.txt", "vllm:inter_token_latency_seconds_sum 1.0\nvllm:inter_token_latency_seconds_count 100\n")
    place("fingerprint.json", '{"a": "1"}')
    for name in ("client.log", "nccl_notes.txt", "server_notes.txt"):
        place(name, "something else")
    found = read_recording([tmp_path])
    assert found.source == str(tmp_path)
    assert [trace.rank for trace in found.ranks] == [0, 1]
    assert (found.facts.source, found.facts.runner, found.info.version) == ("server.log", "V2", "0.24.0")
    assert [(log.source, log.rank) for log in found.nccl] == [("nccl.0.log", 0), ("nccl.1.log.gz", 1)]
    assert found.nccl[0].window == "the last 0 all-gathers of the log"
    assert (found.inter_token_us, found.fingerprint, found.expected_ranks) == (pytest.approx(10_000), {"a": "1"}, None)


def test_files_that_are_named_one_by_one(place):
    trace, log = place("rank1.pt.trace.json"), place("server.1.log", "INFO 11-29 13:23:47 Using V2 Model Runner\n")
    nccl = place("nccl.log", "")
    found = read_recording([trace, log, nccl])
    assert found.source == f"{trace}, {log}, {nccl}"
    assert ([one.rank for one in found.ranks], found.facts.runner) == ([1], "V2")
    assert (len(found.nccl), found.info, found.inter_token_us, found.fingerprint) == (1, None, None, {})


def test_an_empty_directory_is_an_empty_recording(tmp_path):
    found = read_recording([tmp_path])
    assert (found.ranks, found.facts, found.nccl) == ((), None, ())


def refusal(paths, read=read_recording):
    with pytest.raises(TraceError) as caught:
        read(paths)
    return caught.value.what, caught.value.where, caught.value.do


def test_two_logs_of_one_kind_are_of_two_runs(place, tmp_path):
    place("server.1.log", "")
    place("server.2.log", "")
    what = "more than one file `server...`: server.1.log, server.2.log"
    assert refusal([tmp_path]) == (what, "", "give the files of one run only")
    place("metrics.txt", "")
    place("metrics.txt.gz", "")
    (tmp_path / "server.2.log").unlink()
    assert refusal([tmp_path])[0] == "more than one file `metrics.txt...`: metrics.txt, metrics.txt.gz"


def test_two_traces_of_one_rank_are_of_two_profiles(place):
    paths = [place("rank0.pt.trace.json"), place("rank1.pt.trace.json"), place("a_rank1.pt.trace.json")]
    assert refusal(paths, read_ranks) == (
        "rank1.pt.trace.json and a_rank1.pt.trace.json are both of rank 1",
        "",
        "give one profile only: one file a rank, all from the same /start_profile",
    )


def test_a_path_that_does_not_exist(place, tmp_path):
    place("rank0.pt.trace.json")
    missing = tmp_path / "nowhere"
    assert refusal([tmp_path, missing]) == ("no such file or directory", str(missing), "check the path")


@pytest.mark.parametrize(("files", "bound", "pools"), [(2, 0, True), (1, 0, False), (2, 1 << 20, False)])
def test_processes_are_started_for_several_large_traces_only(place, monkeypatch, files, bound, pools):
    started = []

    class Pool:
        def __init__(self, workers, context):
            started.append((workers, context.get_start_method()))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def map(self, read, paths):
            return map(read, paths)

    monkeypatch.setattr(recording, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(recording, "_WORTH_A_PROCESS", bound)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    paths = [place(f"rank{rank}.pt.trace.json") for rank in reversed(range(files))]
    assert [trace.rank for trace in read_ranks(paths)] == list(range(files))
    assert started == ([(files, "spawn")] if pools else [])
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert len(read_ranks(paths)) == files
    assert len(started) == (1 if pools else 0)


def test_a_total_that_is_just_worth_it_is_not_more(place, monkeypatch):
    paths = [place(f"rank{rank}.pt.trace.json") for rank in (0, 1)]
    monkeypatch.setattr(recording, "_WORTH_A_PROCESS", sum(path.stat().st_size for path in paths))
    monkeypatch.setattr(recording, "ProcessPoolExecutor", None)
    assert len(read_ranks(paths)) == 2
    with pytest.raises(TraceError):
        read_ranks([paths[0], paths[0].with_name("nowhere")])
