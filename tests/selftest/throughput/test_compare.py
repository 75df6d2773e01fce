"""`glm5check compare`: losses, gains, noise, gaps, and runs that do not compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from glm5check.cli.compare import compare
from glm5check.errors import FingerprintError
from glm5check.records import Measurement
from glm5check.reports import json_report
from glm5check.reports.model import Case, CaseOutcome, Report

FACTS = {"gpu.0": "NVIDIA H200, driver 580", "model.digest": "ab12", "version.vllm": "0.31.0"}


def night(path: Path, facts: dict[str, str] = FACTS, seed: int = 0, **medians: float) -> Path:
    source = np.random.default_rng(seed)
    measurements = tuple(
        Measurement(
            name=name,
            unit="ms" if name == "ttft" else "tok/s",
            samples=tuple((median * np.exp(source.normal(0, 0.01, 40))).tolist()),
            higher_is_better=name != "ttft",
        )
        for name, median in medians.items()
    )
    case = Case(nodeid="tests/throughput/t.py::t", outcome=CaseOutcome.PASSED, measurements=measurements)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json_report.render(Report(started=path.stem, cases=(case,), fingerprint=facts)))
    return path


def compared(before: Path, after: Path) -> Result:
    return CliRunner().invoke(compare, [str(before), str(after)])


def test_a_loss_of_5_percent_fails_whichever_way_is_better(tmp_path: Path) -> None:
    before = night(tmp_path / "a.json", decode=60, ttft=30)
    after = night(tmp_path / "b.json", seed=1, decode=57, ttft=31.5)
    result = compared(before, after)
    assert result.exit_code == 1, result.output
    assert result.output.count("throughput.regression: got") == 2


def test_no_change_and_gains_pass_also_against_a_directory_of_nights(tmp_path: Path) -> None:
    for number in range(3):
        night(tmp_path / "nights" / f"{number}.json", seed=number, decode=60, ttft=30)
    after = night(tmp_path / "b.json", {**FACTS, "version.vllm": "0.32.0"}, seed=9, decode=63, ttft=30)
    result = compared(tmp_path / "nights", after)
    assert result.exit_code == 0, result.output
    assert "(3 runs)" in result.output


def test_a_quantity_that_one_run_lacks_is_not_passed_over(tmp_path: Path) -> None:
    result = compared(night(tmp_path / "a.json", decode=60, ttft=30), night(tmp_path / "b.json", decode=60))
    assert result.exit_code == 2
    assert "the measurement has no samples" in result.output


@pytest.mark.parametrize(("key", "value"), [("gpu.0", "NVIDIA A100, driver 580"), ("model.digest", "cd34")])
def test_other_machines_and_models_are_refused_by_name(tmp_path: Path, key: str, value: str) -> None:
    before = night(tmp_path / "a.json", decode=60)
    result = compared(before, night(tmp_path / "b.json", {**FACTS, key: value}, decode=60))
    assert isinstance(result.exception, FingerprintError)
    assert key in str(result.exception)
