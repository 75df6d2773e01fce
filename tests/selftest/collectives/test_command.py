"""`glm5check preflight`: what it prints and saves, its exit codes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from glm5check.cli.preflight import preflight
from glm5check.collectives.results import Status, from_json
from glm5check.errors import OptionError

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="inconclusive: the rehearsal is for machines without GPUs"
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(preflight, [str(argument) for argument in arguments])


def test_a_rehearsal(tmp_path: Path) -> None:
    path = tmp_path / "preflight.json"
    result = run("--max-bytes", 4, "--json", path)
    assert result.exit_code == 0, result.output
    assert "2 ranks on 1 node(s), cpu (a rehearsal: no graph, no NCCL)" in result.output
    assert result.output.rstrip().endswith("RIGHT")
    saved = from_json(path)
    assert [one.status for one in saved.results] == [Status.RIGHT]
    assert saved.is_rehearsal


def test_a_fault_that_is_caught() -> None:
    result = run("--max-bytes", 4, "--fault", "deaf")
    assert result.exit_code == 1
    assert "never use TORCH: wrong answers, first at 4 bytes (eager, rank 1)" in result.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--nnodes", 2], "needs --master"),
        (["--nnodes", 2, "--master", "host"], "needs --master"),
        (["--backend", "CUSTOM"], "choose from TORCH"),
    ],
)
def test_what_it_refuses(arguments: list[object], told: str) -> None:
    refused = run(*arguments).exception
    assert isinstance(refused, OptionError)
    assert told in str(refused)
