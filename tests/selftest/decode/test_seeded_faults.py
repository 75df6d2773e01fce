"""Each fault, seeded into the embedded server, fails the test that should catch it, in words that name its kind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glm5check.errors import OptionError
from glm5check.records import Measurement
from glm5check.reports import names
from glm5check.vllm_plugin import faults

ROOT = Path(__file__).parents[3]
SEEDABLE = [fault for fault in faults.ALL if not fault.needs_gpu]


@pytest.mark.slow
@pytest.mark.parametrize("fault", SEEDABLE, ids=lambda fault: fault.name)
def test_a_seeded_fault_is_caught(fault, tmp_path, measure):
    """With --glm5-report the page has a table of them: which fault, which test, caught or missed."""
    command = [sys.executable, "-m", "pytest", f"--glm5-faults={fault.name}", f"--glm5-report={tmp_path}"]
    options = ["-p", "no:cacheprovider", "--tb=short", "-q", f"{fault.caught_by}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    run = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    caught = run.returncode == 1 and "CheckFailed" in run.stdout and fault.says in run.stdout
    measure(
        Measurement(
            name=names.DETECTION,
            unit="s",
            samples=(time.monotonic() - began,),
            higher_is_better=False,
            where={
                "fault": fault.name,
                "test": fault.caught_by.rpartition("::")[2],
                "result": "caught" if caught else "missed",
            },
        )
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "CheckFailed" in run.stdout, run.stdout
    assert fault.says in run.stdout, run.stdout


@pytest.mark.parametrize("fault", faults.ALL, ids=lambda fault: fault.name)
def test_the_test_that_should_catch_a_fault_exists(fault):
    path, _, name = fault.caught_by.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_a_fault_that_nobody_knows_lists_the_right_ones():
    with pytest.raises(OptionError, match="phantom_tensor"):
        faults.apply(["phantom"])
