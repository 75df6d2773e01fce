"""One rank of the pre-flight: `python -m torch.distributed.run ... -m glm5check.collectives.worker TASK DIRECTORY`.

It checks and times one combination at every size and leaves `rank<N>.json` in the given directory. If it is not done in
time, or is told to stop, every thread's stack goes to `stacks-rank<N>.txt` there, and `stage-rank<N>.txt` says where it
was. Rank 0's file has the whole result.
"""

from __future__ import annotations

import datetime
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import torch
import torch.distributed as dist

from glm5check.collectives.backends import Backend, UnavailableError, local_device, make_backend
from glm5check.collectives.faults import with_fault
from glm5check.collectives.graph import Captured, poison, synchronize, timed_us
from glm5check.collectives.integers import crafted, differs, expected_sum
from glm5check.collectives.results import Latency, Mode, Wrong

_WRONG_KEPT: Final = 8
# Bytes above which one all-reduce is long enough to be timed by itself, and a few samples say enough.
_LARGE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a set of workers does: one backend, message sizes in bytes, `rounds` of checked inputs a size and mode.

    `samples` timings of `repeats` all-reduces each; `limit_s` until the stacks are written and the rank gives up.
    """

    backend: str
    sizes: tuple[int, ...]
    rounds: int
    samples: int
    repeats: int
    limit_s: float
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a set of workers found."""

    unavailable: str = ""
    latencies: tuple[Latency, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    refused_bytes: tuple[int, ...] = ()


class _Rank:
    """One process's part of the task."""

    def __init__(self, task: Task, directory: Path) -> None:
        self.task, self.directory = task, directory
        self.device = local_device()
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.wrong: list[Wrong] = []
        self.refused: list[int] = []
        self.latencies: list[Latency] = []

    def run(self) -> Report:
        self._stage("making the backend")
        backend, reason = self._make()
        reasons = self._gathered(reason)
        if any(reasons):
            return Report(unavailable=next(filter(None, reasons)))
        assert backend is not None
        for size in self.task.sizes:
            self._size(backend, size)
        wrong = [entry for part in self._gathered(self.wrong) for entry in part]
        return Report(latencies=tuple(self.latencies), wrong=tuple(wrong), refused_bytes=tuple(self.refused))

    def _make(self) -> tuple[Backend | None, str]:
        try:
            return with_fault(make_backend(self.task.backend, self.device), self.task.fault), ""
        except UnavailableError as error:
            return None, str(error)

    def _size(self, backend: Backend, size: int) -> None:
        elements = max(1, size // torch.bfloat16.itemsize)
        source = crafted(self.rank, self.ranks, 0, elements, self.device)
        if any(self._gathered(backend.refusal(source))):
            self.refused.append(size)
            return
        for mode in Mode:
            self._stage(f"checking {size} bytes, {mode}")
            captured = Captured(backend, source) if mode is Mode.REPLAY else None
            self._check(backend, captured, source, size, mode)
            self._stage(f"timing {size} bytes, {mode}")
            self._time(backend, source, size, mode)

    def _check(self, backend: Backend, captured: Captured | None, source: torch.Tensor, size: int, mode: Mode) -> None:
        for round_ in range(self.task.rounds):
            source.copy_(crafted(self.rank, self.ranks, round_, len(source), self.device))
            if captured is None:
                output = backend.reduce(source)
            else:
                poison(captured.output)
                synchronize(self.device)
                captured.replay()
                output = captured.output
            synchronize(self.device)
            want = expected_sum(self.ranks, round_, len(source), self.device)
            what = differs(output, want, self._other_rounds(round_, len(source)))
            if what and len(self.wrong) < _WRONG_KEPT:
                self.wrong.append(Wrong(size_bytes=size, mode=mode, rank=self.rank, round=round_, what=what))
            # If the backend hands out the same buffer again without writing it, the next round finds the poison.
            poison(output)

    def _other_rounds(self, round_: int, elements: int) -> Iterator[tuple[int, torch.Tensor]]:
        for other in range(self.task.rounds):
            if other != round_:
                yield other, expected_sum(self.ranks, other, elements, self.device)

    def _time(self, backend: Backend, source: torch.Tensor, size: int, mode: Mode) -> None:
        large = size >= _LARGE
        repeats = 1 if large else self.task.repeats
        work = Captured(backend, source, repeats).replay if mode is Mode.REPLAY else _eager(backend, source, repeats)
        work()
        times = []
        for _ in range(self.task.samples // 5 if large else self.task.samples):
            synchronize(self.device)
            dist.barrier()
            times.append(timed_us(self.device, work) / repeats)
        each = list(zip(*self._gathered(times), strict=True))
        slowest = sorted(max(sample) for sample in each)
        self.latencies.append(
            Latency(
                size_bytes=size,
                mode=mode,
                median_us=median(slowest),
                p99_us=slowest[min(len(slowest) - 1, int(0.99 * len(slowest)))],
                net_us=median(min(sample) for sample in each),
            )
        )

    def _gathered(self, mine: Any) -> list[Any]:
        """Every rank's value, through the control group and not through what is being tested."""
        values: list[Any] = [None] * self.ranks
        dist.all_gather_object(values, mine)
        return values

    def _stage(self, what: str) -> None:
        (self.directory / f"stage-rank{self.rank}.txt").write_text(what)


def _eager(backend: Backend, source: torch.Tensor, repeats: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(repeats):
            backend.reduce(source)

    return work


def main(arguments: list[str]) -> None:
    """Run the task of `arguments`: the task's JSON and the directory for results."""
    task = msgspec.json.decode(arguments[0], type=Task)
    directory = Path(arguments[1])
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2 * task.limit_s))
    rank = dist.get_rank()
    with (directory / f"stacks-rank{rank}.txt").open("w") as stacks:
        faulthandler.dump_traceback_later(task.limit_s, exit=True, file=stacks)
        # When another rank gave up first, torchrun ends this one: its stack matters as much.
        faulthandler.register(signal.SIGTERM, file=stacks, chain=True)
        report = _Rank(task, directory).run()
        (directory / f"rank{rank}.json").write_bytes(msgspec.json.encode(report))
        dist.barrier()
        # Everything is said. Tearing down gloo's threads on a busy machine ends in std::terminate now and then, which
        # would count as a crash of what was tested.
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
