"""No false alarms: healthy runs in other orders, with other thread counts and other number types stay green."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUNS = [(dtype, threads, seed) for seed in range(5) for dtype in ("float32", "bfloat16") for threads in (1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "threads", "seed"), RUNS)
def test_a_healthy_server_raises_no_alarm(dtype, threads, seed, tmp_path):
    """Files in another order make other batches and leave other state behind; so do the threads that send requests."""
    files = [*ROOT.glob("tests/decode/test_*.py"), *ROOT.glob("tests/context/test_*.py")]
    random.Random(seed).shuffle(files)
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short", "-m", "not slow"),
        *(f"--glm5-serve-arg=--dtype={dtype}", f"--glm5-report={tmp_path}"),
        *map(str, files),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
