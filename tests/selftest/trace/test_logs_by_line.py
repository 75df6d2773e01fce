"""Logs of a few lines: what each leaves, what repeats, what is not of this server, and what is refused."""

from __future__ import annotations

import gzip

import pytest

from glm5check.errors import TraceError
from glm5check.evidence import Dispatch, GraphMode, NcclChoice
from glm5check.trace import lines as lines_module
from glm5check.trace.lines import read_lines
from glm5check.trace.nccl_log import nccl_counts, nccl_counts_since, read_nccl_log
from glm5check.trace.server_log import read_server_log, server_facts

WORKER = "(Worker_TP0 pid=1096) INFO 11-29 13:23:47 [file.py:1] "
CONFIG = (
    "Initializing a V1 LLM engine (v0.24.0) with config: model='x', tensor_parallel_size=8, enforce_eager=True, "
    "compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL: 2>, 'cudagraph_capture_sizes': [1, 2, 4, 8]}"
)


def facts(*lines):
    return server_facts([WORKER + line for line in lines])


def test_the_configuration_of_the_engine():
    found = facts(CONFIG)
    assert (found.version, found.requested_mode, found.capture_sizes) == ("0.24.0", "FULL", (1, 2, 4, 8))
    assert (found.enforce_eager, found.tensor_parallel) == (True, 8)
    assert found.source == "server log"
    other = facts(CONFIG.replace("=True", "=False").replace("[1, 2, 4, 8]", "[]").replace("FULL", "NONE"))
    assert (other.enforce_eager, other.capture_sizes, other.requested_mode) == (False, (), "NONE")
    short = facts("Initializing a V1 LLM engine (v0.24.0) with config: model='x'")
    assert (short.version, short.enforce_eager, short.tensor_parallel, short.capture_sizes) == (
        "0.24.0",
        None,
        None,
        (),
    )


def test_the_configuration_line_is_no_downgrade_though_it_quotes_words_of_one():
    quoted = CONFIG + " note='overriding cudagraph_mode, Enforce eager set, disabling, falling back to NCCL'"
    found = facts(quoted)
    assert (found.downgrades, found.graphs_off, found.all_reduce_notes) == ((), (), ())


def test_graphs_are_planned_captured_and_counted():
    found = facts(
        "Profiling CUDA graph memory: PIECEWISE=5 (largest=16), FULL=4 (largest=16)",
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|##| 5/5 [00:01<00:00]",
        "Capturing CUDA graphs (decode, FULL):  50%|#| 2/4 [00:01<00:00]",
        "Capturing CUDA graphs (decode, FULL): 100%|##| 4/4 [00:01<00:00]",
        "Capturing CUDA graphs (decode, FULL): 100%|##| 3/3 [00:01<00:00]",
        "Graph capturing finished in 4 secs, took 0.08 GiB",
    )
    assert found.planned == {"PIECEWISE": 5, "FULL": 4}
    assert found.captured == {"PIECEWISE": 5, "FULL": 4}
    assert found.capture_finished is True
    assert facts("said: Graph capturing finished in 4 secs").capture_finished is False


def test_rows_of_the_dispatch_table_add_up_in_order():
    found = facts(
        "| Unpadded | Padded | Paddings | Mode | Count |",
        "| 2 | 4 | 2 | PIECEWISE | 3 |",
        "| 1 | 1 | 0 | FULL | 10 |",
        "| 1 | 1 | 0 | FULL | 5 |",
        "| 1 | 1 | 0 | NONE | 1 |",
    )
    assert found.dispatches == (
        Dispatch(1, 1, GraphMode.FULL, 15),
        Dispatch(1, 1, GraphMode.NONE, 1),
        Dispatch(2, 4, GraphMode.PIECEWISE, 3),
    )


def test_backends_attention_and_libraries():
    found = facts(
        "Using ['CUSTOM', 'PYNCCL'] all-reduce backends (in dispatch order) for group 'tp:0' out of ['A']",
        "Using FLASHMLA attention backend",
        "vLLM is using nccl==2.28.9 ",
        "Enabled custom fusions: allreduce_rms",
        "Using V2 Model Runner",
    )
    assert found.all_reduce_backends == ("CUSTOM", "PYNCCL")
    assert (found.attention_backend, found.nccl_version, found.fused_all_reduce) == ("FLASHMLA", "2.28.9", True)
    assert found.runner == "V2"
    none = facts("it says vLLM is using nccl==2.28.9", "Enabled custom fusions: norm_quant")
    assert (none.nccl_version, none.fused_all_reduce) == ("", False)


def test_memory_and_scheduling():
    found = facts(
        "GPU KV cache size: 1,234,567 tokens",
        "Available KV cache memory: 61.9 GiB",
        "Asynchronous scheduling is enabled.",
    )
    assert (found.kv_cache_tokens, found.kv_cache_gib, found.async_scheduling) == (1234567, 61.9, True)


def test_a_line_that_comes_twice_is_kept_once_and_others_in_their_order():
    second = "Skipping CUDA graph capture. X"
    found = facts("Enforce eager set, disabling torch.compile", second, "Enforce eager set, disabling torch.compile")
    assert found.graphs_off == ("Enforce eager set, disabling torch.compile", second)


@pytest.mark.parametrize(
    "prefix",
    [
        WORKER,
        "INFO 11-29 13:23:47 [file.py:1] ",
        "WARNING 11-29 13:23:47 ",
        "(EngineCore_0 pid=7) ERROR 11-29 13:23:47 [file.py:1] ",
        "(Worker pid=7) ",
        "",
    ],
)
def test_prefixes_are_no_part_of_a_message(prefix):
    assert server_facts([f"{prefix}Skipping CUDA graph capture"]).graphs_off == ("Skipping CUDA graph capture",)


def test_one_prefix_is_taken_off_and_no_more():
    found = server_facts([WORKER + WORKER + "Skipping CUDA graph capture"])
    assert found.graphs_off == (WORKER + "Skipping CUDA graph capture",)


def test_a_log_file_is_named(tmp_path):
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress((WORKER + "Using V2 Model Runner\n").encode()))
    assert (read_server_log(path).source, read_server_log(path).runner) == ("server.log.gz", "V2")


@pytest.fixture
def log(tmp_path):
    def write(data, name="a.log"):
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return write


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
def test_lines_without_ends_colours_and_returns(log, name):
    path = log(b"one\r\ntwo\x1b[31m red\x1b[0m\n\n10%\r20%\rdone \nX\nlast \xff", name)
    assert list(read_lines(path)) == ["one", "two red", "", "10%", "20%", "done ", "X", "last \ufffd"]


def test_a_log_can_be_read_from_a_byte_on(log):
    path = log(b"one\ntwo\nthree\n")
    assert list(read_lines(path, offset=4)) == ["two", "three"]
    assert list(read_lines(path, offset=14)) == []
    assert list(read_lines(log(b"x\n", "b.log.gz"), offset=0)) == ["x"]


def test_long_lines_are_cut_and_nothing_is_lost(log, monkeypatch):
    monkeypatch.setattr(lines_module, "_MAX_LINE", 4)
    assert list(read_lines(log(b"abcdefghij\nk\n"))) == ["abcd", "efgh", "ij", "k"]


def test_logs_that_cannot_be_read_say_why(log, tmp_path):
    for path, offset, what, do in (
        (log(b"x", "a.log.gz"), 5, "a compressed log has no offsets", "give the plain log file"),
        (tmp_path / "nowhere.log", 0, "the log cannot be read (No such file or directory)", "check the path"),
    ):
        with pytest.raises(TraceError) as caught:
            list(read_lines(path, offset=offset))
        assert (caught.value.what, caught.value.where, caught.value.do) == (what, str(path), do)
    cut = tmp_path / "cut.log.gz"
    cut.write_bytes(gzip.compress(b"x" * 1000)[:-4])
    with pytest.raises(TraceError, match=r"^the compressed log is cut or damaged \(") as caught:
        list(read_lines(cut))
    assert caught.value.where == str(cut)


def call(operation, ranks=2):
    return (
        f"vm:1:1 [0] NCCL INFO {operation}: opCount 0 sendbuff 0x1 recvbuff 0x2 count 6144 datatype 9 op 0 root 0 "
        f"comm 0x3 [nranks={ranks}] stream 0x4"
    )


def calls(letters):
    return [call({"R": "AllReduce", "G": "AllGather", "B": "Broadcast"}[letter]) for letter in letters]


def init(rank, ranks):
    return f"vm:1:1 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank {rank} nranks {ranks} cudaDev 0"


def test_what_nccl_says_about_itself():
    found = nccl_counts(
        [
            init(1, 2),
            init(5, 8),
            init(0, 1),
            "vm:1:1 [0] NCCL INFO AllReduce: 12288 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..7}",
            "vm:1:1 [0] NCCL INFO AllGather: 16 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}",
            "vm:1:1 [0] NCCL INFO AllReduce: 12288 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..7}",
            "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
            "vm:1:1 [0] NCCL INFO Channel 01 : 0[0] -> 1[1] via P2P/CUMEM",
            "vm:1:1 [0] NCCL INFO Channel 02/0 : 0[0] -> 1[1] via SHM/direct",
            "AllReduce: 1 Bytes -> Algo TREE proto LL",
        ],
        last_steps=1,
    )
    assert (found.source, found.rank, found.window) == ("NCCL log", 5, "the last 0 all-gathers of the log")
    assert found.choices == (
        NcclChoice("AllReduce", 12288, "RING", "LL"),
        NcclChoice("AllGather", 16, "RING", "SIMPLE"),
    )
    assert dict(found.transports) == {"P2P/CUMEM": 2, "SHM/direct": 1}


def test_of_two_communicators_of_one_size_the_later_names_the_rank():
    assert nccl_counts([init(1, 8), init(2, 8), init(3, 4)], last_steps=1).rank == 2
    assert nccl_counts([], last_steps=1).rank is None


@pytest.mark.parametrize(
    ("letters", "last", "steps", "reduces", "gathers"),
    [
        ("RRGRGRRG", 1, 1, 2, 1),
        ("RRGRGRRG", 2, 2, 3, 2),
        ("RRGRGRRG", 9, 2, 3, 2),
        ("RRGRGRRGR", 1, 1, 3, 1),
        ("RBGBRG", 5, 1, 1, 1),
        ("G", 5, 0, 0, 0),
    ],
)
def test_the_window_is_of_the_last_steps(letters, last, steps, reduces, gathers):
    found = nccl_counts(calls(letters), last_steps=last)
    assert (found.all_reduces, found.all_gathers) == (reduces, gathers)
    assert found.window == f"the last {steps} all-gathers of the log"
    assert (found.total_all_reduces, found.total_all_gathers) == (letters.count("R"), letters.count("G"))


def test_communicators_of_two_ranks_count_and_those_of_one_do_not():
    found = nccl_counts(["", call("AllReduce", 2), call("AllReduce", 1), call("AllGather", 8)], last_steps=1)
    assert (found.total_all_reduces, found.total_all_gathers) == (1, 1)


def test_a_live_log_knows_the_whole_and_counts_the_new(log):
    before = "\n".join([init(3, 8), *calls("RG"), ""])
    path = log((before + "\n".join([*calls("RRG"), ""])).encode(), "nccl.log")
    found = nccl_counts_since(path, len(before))
    assert (found.all_reduces, found.all_gathers, found.total_all_reduces, found.total_all_gathers) == (2, 1, 3, 2)
    assert (found.rank, found.source, found.window) == (3, "nccl.log", f"what was logged after byte {len(before):,}")
    saved = read_nccl_log(path, last_steps=1)
    assert (saved.source, saved.rank, saved.all_reduces) == ("nccl.log", 3, 2)
