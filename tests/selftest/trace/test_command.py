"""`glm5check trace` on recorded files: its verdict, its exit code, its JSON, and its words for what it cannot read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fixtures import DATA
from glm5check.cli.trace import trace
from glm5check.errors import TraceError

GRAPHS = DATA / "graphs"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(trace, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("name", "code", "verdict", "mode"),
    [
        ("full", 0, "IN GRAPHS", "FULL"),
        ("piecewise", 0, "IN GRAPHS", "PIECEWISE"),
        ("customar", 0, "IN GRAPHS", "FULL"),
        ("simple", 0, "IN GRAPHS", "FULL"),
        ("eager", 1, "NOT IN GRAPHS", "NONE"),
    ],
)
def test_recordings(name: str, code: int, verdict: str, mode: str) -> None:
    result = run(GRAPHS / name)
    assert result.exit_code == code
    assert result.output.startswith(f"{verdict}: ")
    assert f"9 steady decode steps of 14, {mode}, all-reduces a step [17]" in result.output


def test_traces_alone(tmp_path: Path) -> None:
    """Without a log, the traces of every rank still carry the verdict."""
    files = sorted((GRAPHS / "full").glob("rank*"))
    assert run(*files).exit_code == 0
    assert run(*reversed(files)).exit_code == 0
    assert run(*files, "--layers", 78).exit_code == 1


def test_one_rank_of_two() -> None:
    result = run(GRAPHS / "full" / "rank0.pt.trace.json.gz")
    assert result.exit_code == 2
    assert "traces of 1 of 2 ranks, missing 1" in result.output


def test_two_ranks_of_eight() -> None:
    result = run(GRAPHS / "full", "--ranks", 8)
    assert result.exit_code == 2
    assert "missing 2, 3, 4, 5, 6, 7" in result.output


def test_a_log_of_another_run(tmp_path: Path) -> None:
    """Traces in graphs beside the log of an eager server: neither is believed."""
    for file in (GRAPHS / "full").glob("rank*"):
        shutil.copy(file, tmp_path)
    shutil.copy(GRAPHS / "eager" / "server.log.gz", tmp_path)
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "graphs.consistent" in result.output


def test_json() -> None:
    told = json.loads(run(GRAPHS / "simple", "--json").output)
    assert told["verdict"] == "in graphs"
    assert told["layers"] == 8
    assert told["all_reduce_net_us"] == pytest.approx(28.2, abs=0.1)
    assert {"operation": "AllReduce", "bytes": 12288, "runs": "RING SIMPLE"} in told["nccl"]
    assert {finding["outcome"] for finding in told["findings"]} == {"passed"}
    for division in told["division"]:
        assert sum(division["parts_us"].values()) == pytest.approx(division["step_us"])


def test_unreadable(tmp_path: Path) -> None:
    """The command line's main turns this into a sentence and exit code 2."""
    path = tmp_path / "rank0.pt.trace.json"
    path.write_text("{")
    assert isinstance(run(path).exception, TraceError)
    assert isinstance(run(tmp_path / "missing").exception, TraceError)


def test_a_directory_without_traces(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "there is no profiler trace" in result.output
