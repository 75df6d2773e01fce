"""The pre-flight as it runs, with gloo on the CPU: right on 2 and 8 ranks, and every seeded fault is caught."""

from __future__ import annotations

import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from glm5check.collectives.launch import Plan, run_all
from glm5check.collectives.results import Combination, CombinationResult, Mode, Status

TORCH = Combination("TORCH")


def run(
    ranks: int = 2, limit_s: float = 120.0, sizes: tuple[int, ...] = (4, 12_288), fault: str = ""
) -> CombinationResult:
    plan = Plan(ranks=ranks, sizes=sizes, rounds=3, samples=5, repeats=2, limit_s=limit_s, fault=fault)
    return run_all(plan, [TORCH])[0]


@pytest.mark.parametrize("ranks", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_right(ranks: int) -> None:
    result = run(ranks)
    assert (result.status, result.detail, result.wrong) == (Status.RIGHT, "", ())
    assert [(row.size_bytes, row.mode) for row in result.latencies] == [
        (size, mode) for size in (4, 12_288) for mode in Mode
    ]
    for row in result.latencies:
        assert 0 < row.net_us <= row.median_us <= row.p99_us


def test_nothing_is_left_where_temporary_files_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run(sizes=(4,)).status is Status.RIGHT
    assert list(tmp_path.iterdir()) == []


def test_stale_result_in_replay() -> None:
    """Only the replays are wrong, and the words say that it is an earlier round's result."""
    result = run(fault="stale")
    assert result.status is Status.WRONG
    assert {wrong.mode for wrong in result.wrong} == {Mode.REPLAY}
    assert {wrong.rank for wrong in result.wrong} == {0, 1}
    assert any("the result of round" in wrong.what for wrong in result.wrong)


def test_a_corrupt_run_below_4_kib() -> None:
    """512 wrong bytes of 12,288 on one rank: every one of them is found, and where."""
    result = run(fault="corrupt")
    assert result.status is Status.WRONG
    assert {(wrong.size_bytes, wrong.rank) for wrong in result.wrong} == {(12_288, 1)}
    assert all("256 of 6144 elements wrong, bytes 6144 to 6655" in wrong.what for wrong in result.wrong)


def test_a_hang_leaves_the_ranks_stacks() -> None:
    """The rank that stays away is seen sleeping, the other one waiting in its all-reduce."""
    result = run(fault="hang", limit_s=10.0, sizes=(4,))
    assert result.status is Status.HUNG
    assert "rank 0, checking 4 bytes, eager" in result.detail
    assert "rank 1, checking 4 bytes, eager" in result.detail
    assert "in all_reduce" in result.detail
    assert "faults.py" in result.detail


def test_a_backend_that_needs_gpus() -> None:
    (result,) = run_all(
        Plan(ranks=2, sizes=(4,), rounds=1, samples=1, repeats=1), [Combination("PYNCCL", "Ring", "LL")]
    )
    assert (result.status, result.detail) == (Status.UNAVAILABLE, "needs GPUs")


def test_a_worker_that_cannot_run() -> None:
    """An unknown fault stops every rank at the start: a crash, with the end of its output."""
    result = run(fault="none such")
    assert result.status is Status.CRASHED
    assert "there is no fault" in result.detail


def test_two_nodes() -> None:
    """Two launchers, one a node, meet at the first one's address; both get the whole result."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        master = f"127.0.0.1:{probe.getsockname()[1]}"

    def node(rank: int) -> CombinationResult:
        plan = Plan(
            ranks=1, nodes=2, node_rank=rank, master=master, sizes=(4,), rounds=2, samples=3, repeats=1, limit_s=120.0
        )
        return run_all(plan, [TORCH])[0]

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(node, (0, 1)))
    assert [result.status for result in results] == [Status.RIGHT, Status.RIGHT]
    assert results[0].latencies == results[1].latencies
