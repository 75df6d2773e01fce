"""Runs each combination of backend, algorithm and protocol in its own set of processes, with a limit.

Its own, because NCCL reads its environment once a process, and because one that hangs or crashes must not take the
others with it. The environment is the caller's (so give it the server's) plus what the combination forces.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from glm5check.collectives.results import Combination, CombinationResult, Status
from glm5check.collectives.worker import Report, Task

SIZES: Final = (4, 1024, 4096, 12_288, 49_152, 98_304, 262_144, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
"""Bytes: two elements to a prefill's message, with GLM-5's decode messages (12,288 a token) of 1, 4 and 8 tokens."""
_START_S: Final = 180.0
_GRACE_S: Final = 10.0
_TAIL: Final = 2000
_NOT_HERE: Final = "no algorithm/protocol available"
_PROTOCOLS: Final = ("LL", "LL128", "Simple")
_OTHERS: Final = (
    *("CUSTOM", "FLASHINFER_PCIE_IPC", "FLASHINFER", "SYMM_MEM"),
    *("NCCL_SYMM_MEM", "QUICK_REDUCE", "TORCH"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to run: `ranks` processes on this node of `nodes`; node 0 is at `master` (host:port) if there are several."""

    ranks: int
    nodes: int = 1
    node_rank: int = 0
    master: str = ""
    sizes: tuple[int, ...] = SIZES
    rounds: int = 5
    samples: int = 50
    repeats: int = 10
    limit_s: float = 120.0
    fault: str = ""


def combinations(*, has_gpus: bool) -> list[Combination]:
    """Every backend that vLLM could choose, and for NCCL every algorithm and protocol that it can be told to use."""
    if not has_gpus:
        return [Combination("TORCH")]
    forced = [Combination("PYNCCL", algorithm, protocol) for algorithm in ("Ring", "Tree") for protocol in _PROTOCOLS]
    others = [Combination(name) for name in _OTHERS]
    return [Combination("PYNCCL"), *forced, Combination("PYNCCL", "NVLS", "Simple"), *others]


def run_all(
    plan: Plan, what: list[Combination], progress: Callable[[str], None] = lambda text: None
) -> list[CombinationResult]:
    """Run the combinations one after another; on every node of several, the same list in the same order."""
    results = []
    for index, combination in enumerate(what):
        progress(f"{index + 1}/{len(what)} {combination}")
        with tempfile.TemporaryDirectory(prefix="glm5check-preflight-") as directory:
            results.append(_run(plan, combination, index, Path(directory)))
    return results


def forbidden(combination: Combination, environment: Mapping[str, str]) -> str:
    """Why the environment rules a combination out; empty if it does not.

    Who switched NVLink multicast off had a reason, which a test must not override.
    """
    needs_multicast = combination.algorithm.startswith("NVLS") or combination.backend == "NCCL_SYMM_MEM"
    if needs_multicast and environment.get("NCCL_NVLS_ENABLE") == "0":
        return "NCCL_NVLS_ENABLE=0 in the environment switches NVLink multicast off"
    return ""


def _run(plan: Plan, combination: Combination, index: int, directory: Path) -> CombinationResult:
    reason = forbidden(combination, os.environ)
    if reason:
        return CombinationResult(combination=combination, status=Status.UNAVAILABLE, detail=reason)
    task = Task(
        backend=combination.backend,
        sizes=plan.sizes,
        rounds=plan.rounds,
        samples=plan.samples,
        repeats=plan.repeats,
        limit_s=plan.limit_s,
        fault=plan.fault,
    )
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(plan.ranks), "--max-restarts", "0"),
        *_rendezvous(plan, index),
        *("-m", "glm5check.collectives.worker", msgspec.json.encode(task).decode(), str(directory)),
    ]
    # NCCL says with a warning, and only then, that it has no such algorithm or protocol here.
    environment = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN", **os.environ, **combination.environment}
    environment["TMPDIR"] = str(directory)  # torchrun leaves a directory of logs where temporary files go
    with (directory / "output.txt").open("wb") as output:
        # A session of its own, so that the whole set can be ended, whatever it started.
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code: int | None = process.wait(timeout=plan.limit_s + _START_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    return _result(combination, code, directory)


def _rendezvous(plan: Plan, index: int) -> list[str]:
    if plan.nodes == 1:
        return ["--standalone", "--local-addr", "127.0.0.1"]
    host, _, port = plan.master.rpartition(":")
    # A port of its own for each combination: the one before may still hold its own.
    places = ["--master-addr", host, "--master-port", str(int(port) + index)]
    return ["--nnodes", str(plan.nodes), "--node-rank", str(plan.node_rank), *places]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group: politely, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_GRACE_S)


def _result(combination: Combination, code: int | None, directory: Path) -> CombinationResult:
    reports = sorted(directory.glob("rank*.json"))
    if code == 0 and reports:
        report = msgspec.json.decode(reports[0].read_bytes(), type=Report)
        status = Status.WRONG if report.wrong else Status.RIGHT
        return CombinationResult(
            combination=combination,
            status=Status.UNAVAILABLE if report.unavailable else status,
            detail=report.unavailable,
            latencies=report.latencies,
            wrong=report.wrong,
            refused_bytes=report.refused_bytes,
        )
    stacks = "\n".join(_stacks(directory))
    output = _own_words((directory / "output.txt").read_text(errors="replace"))
    timed_out = code is None or "Timeout (" in stacks
    status = Status.HUNG if timed_out else Status.UNAVAILABLE if _NOT_HERE in output else Status.CRASHED
    return CombinationResult(
        combination=combination, status=status, detail=(stacks if timed_out else output) or "no output"
    )


def _own_words(output: str) -> str:
    """The end of what the workers wrote, without torchrun's own account of their failure."""
    own, _, account = output.partition("torch/distributed/elastic/")
    return (own.rpartition("\n")[0] or account)[-_TAIL:].strip()


def _stacks(directory: Path) -> Iterator[str]:
    """Where each rank was, and the innermost frames of its stack."""
    for stage in sorted(directory.glob("stage-rank*.txt")):
        rank = stage.stem.removeprefix("stage-rank")
        stacks = directory / f"stacks-rank{rank}.txt"
        text = stacks.read_text(errors="replace").strip() if stacks.exists() else ""
        yield f"rank {rank}, {stage.read_text()}:\n{text[-_TAIL:] or '  (no stack was written)'}"
