"""Host calls in NCCL's log: silent in graphs, 17 a step when eager, and the TUNING line's protocol."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fixtures import DATA
from glm5check.trace.nccl_log import nccl_counts, nccl_counts_since, read_nccl_log

GRAPHS = DATA / "graphs"
CALL = (
    "vm:1:1 [0] NCCL INFO {}: opCount 0 sendbuff 0x1 recvbuff 0x2 count 6144 datatype 9 op 0 root 0 comm 0x3 "
    "[nranks={}] stream 0x4"
)


@pytest.mark.parametrize(
    ("name", "window", "total", "gathers"),
    [
        ("full", 0, 495, 1054),
        ("simple", 0, 495, 1054),
        ("piecewise", 0, 291, 1054),
        ("customar", 0, 19, 1054),
        ("eager", 17 * 200, 5153, 303),  # the log is cut, in the middle of its last line
    ],
)
def test_recordings(name: str, window: int, total: int, gathers: int) -> None:
    counts = read_nccl_log(GRAPHS / name / "nccl.log.gz", last_steps=200)
    assert (counts.all_reduces, counts.all_gathers) == (window, 200)
    assert (counts.total_all_reduces, counts.total_all_gathers) == (total, gathers)
    assert counts.rank == 0
    assert dict(counts.transports) == {"P2P/CUMEM": 72}


@pytest.mark.parametrize(("name", "protocol"), [("full", "LL"), ("simple", "SIMPLE")])
def test_protocol_is_the_tuning_lines(name: str, protocol: str) -> None:
    """Both recordings' kernels are called ..._RING_LL; only one of them ran LL."""
    counts = read_nccl_log(GRAPHS / name / "nccl.log.gz", last_steps=200)
    found = [choice for choice in counts.choices if (choice.operation, choice.size_bytes) == ("AllReduce", 12288)]
    assert [(choice.algorithm, choice.protocol) for choice in found] == [("RING", protocol)]


def test_a_live_log_is_counted_from_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_bytes(gzip.decompress((GRAPHS / "full" / "nccl.log.gz").read_bytes()))
    offset = path.stat().st_size
    with path.open("a") as log:
        log.writelines(CALL.format("AllGather", 8) + "\n" for _ in range(70))
        log.write(CALL.format("AllReduce", 8) + "\n")
    counts = nccl_counts_since(path, offset)
    assert (counts.all_reduces, counts.all_gathers, counts.total_all_gathers) == (1, 70, 1054 + 70)


def test_other_lines_and_lone_ranks_do_not_count() -> None:
    lines = [
        CALL.format("AllReduce", 1),
        CALL.format("Broadcast", 8),
        "AllReduce: opCount",
        "",
        CALL.format("AllGather", 2),
    ]
    counts = nccl_counts(lines, last_steps=8)
    assert (counts.total_all_reduces, counts.total_all_gathers) == (0, 1)


def test_the_window_begins_after_an_all_gather() -> None:
    """What led up to the first counted all-gather belongs to its step."""
    calls = "RRG RG RRRG G"
    lines = [CALL.format({"R": "AllReduce", "G": "AllGather"}[call], 2) for call in calls.replace(" ", "")]
    counts = nccl_counts(lines, last_steps=2)
    assert (counts.all_reduces, counts.all_gathers) == (3, 2)


@pytest.mark.parametrize(("calls", "gathers"), [("RRRRG", 0), ("RRRRGGG", 2), ("RRRR", 0), ("", 0)])
def test_start_up_is_never_in_the_window(calls: str, gathers: int) -> None:
    """A log shorter than the window asked for: the all-reduces of warm-up and capture do not count as decode."""
    lines = [CALL.format({"R": "AllReduce", "G": "AllGather"}[call], 2) for call in calls]
    counts = nccl_counts(lines, last_steps=3)
    assert counts.all_gathers == gathers
    assert counts.all_reduces == (4 if calls == "RRRR" else 0)
