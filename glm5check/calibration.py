"""What this machine gives right now: memory bandwidth, the pace of its interpreter, CPU time that others take.

Speeds are only comparable with what the machine could have given at that moment, so these are measured in the same
session; what changes within a second, during the very rounds that they judge.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final

import numpy as np
import psutil
from numpy.typing import NDArray

READ_REPEATS: Final = 15
UNIT_EVERY_S: Final = 0.01
"""Between two units on a core: they take 1.5 % of it, and a round of a second has a hundred on each. Speeds at their
pace scatter by 3 to 5 % over rounds with it, no less with twice as many, by 7 to 9 % with half as many."""
OUTLIER: Final = 3.0
"""Times the median unit that one may count at most: it was not slow then, something else ran in it."""
_WIDTH: Final = 256
_BYTECODES: Final = 600
_PRODUCTS: Final = 4
MIN_READ_BYTES: Final = 1 << 20
COPY_BYTES: Final = 1 << 30
"""More than any GPU's cache."""


def read_bandwidth(nbytes: int, readers: int) -> float:
    """Bytes per second that one of `readers` can read when all read at once, each its own `nbytes`, over and over.

    With as many bytes as a decode step reads, a model that fits the caches is measured at their speed. The best of
    several repeats counts, because a bound on speed needs the most that is possible. Arrays are of float32.
    """
    import numba

    @numba.njit(nogil=True, fastmath=True)  # type: ignore[untyped-decorator]
    def total(values: NDArray[np.float32]) -> np.float32:
        result = np.float32(0)
        for value in values:
            result += value
        return result

    length = max(nbytes, MIN_READ_BYTES) // 4
    arrays = [np.ones(length, np.float32) for _ in range(readers)]
    total(arrays[0])

    def seconds(array: NDArray[np.float32]) -> float:
        start = time.perf_counter()
        total(array)
        return time.perf_counter() - start

    with ThreadPoolExecutor(readers) as pool:
        slowest = min(max(pool.map(seconds, arrays)) for _ in range(READ_REPEATS))
    return length * 4 / slowest


def gpu_read_bandwidth(*, seconds: float = 120.0) -> float | None:
    """Bytes per second that one GPU copies (bytes read and bytes written), or None where it cannot be measured.

    Runs in a process of its own, so that no CUDA context stays in this one, on the first GPU: those of a server are
    alike. A copy of more than any cache comes within a few percent of what reading alone can reach.
    """
    command = [sys.executable, "-m", "glm5check.calibration"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True).stdout
        return float(answer)
    except (subprocess.SubprocessError, ValueError):
        return None


def _copy_on_gpu() -> float:
    import torch

    free, _ = torch.cuda.mem_get_info()
    source = torch.empty(min(COPY_BYTES, free // 4), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(READ_REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return float(2 * source.nbytes / min(times))


def _unit(matrix: NDArray[np.float32], vector: NDArray[np.float32]) -> int:
    """Small matrices and interpreter work in about the mix of a decode step of a tiny model in vLLM."""
    for _ in range(_PRODUCTS):
        np.maximum(matrix @ vector, 0)
    total = 0
    for number in range(_BYTECODES):
        total += number * number % 7
    return total


def _work(parent: Connection) -> None:
    # Linux may group processes by session to share out the cores: in one with the client, units would use up its turn.
    os.setsid()
    source = np.random.default_rng(0)
    matrix = source.random((_WIDTH, _WIDTH), dtype=np.float32)
    vector = source.random(_WIDTH, dtype=np.float32)
    with contextlib.suppress(EOFError):  # our parent may be gone before it could say so
        while parent.recv():
            times = []
            while not parent.poll(UNIT_EVERY_S):
                start = time.perf_counter()
                _unit(matrix, vector)
                times.append(time.perf_counter() - start)
            if not parent.recv():
                return
            parent.send(times)


def keep_to_core(pid: int, place: int, places: int) -> None:
    """Keep a process (0: this thread) to the core of its `place`; not where we have fewer cores than `places`."""
    cores = sorted(os.sched_getaffinity(0))
    if places <= len(cores):
        os.sched_setaffinity(pid, {cores[place]})


class Pace:
    """How fast the cores are while a server works on them: seconds of a small unit of work, now and then on each.

    A unit runs between the steps of a rank, with what the rank has left of the caches, so it meets the same core at the
    same moment: its clock, a neighbour on its other thread, memory that others use. Measured before and after a round
    instead, it says little about it, since such states last for less than a second, and a core that has rested is
    often slower than one that works. There are as many processes as ranks, each on the core of one where there are
    enough. Close it, or use contextlib.closing.
    """

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            assert process.pid is not None
            keep_to_core(process.pid, len(self._processes), processes)
            self._pipes.append(ours)
            self._processes.append(process)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.send(False)
        for process in self._processes:
            process.join(5)
            process.kill()

    def start(self) -> None:
        """Begin to run units."""
        for pipe in self._pipes:
            pipe.send(True)

    def stop(self) -> float:
        """End that, and return the seconds of one unit: the mean over all cores; NaN after less than UNIT_EVERY_S."""
        for pipe in self._pipes:
            pipe.send(True)
        return float(np.mean([_mean(pipe.recv()) for pipe in self._pipes]))


def _mean(times: Sequence[float]) -> float:
    return float(np.mean(np.minimum(times, OUTLIER * np.median(times)))) if times else float("nan")


class Neighbours:
    """CPU time that programs other than this one and its descendants (a server that it started) take.

    Time stolen by a hypervisor counts as theirs.
    """

    def __init__(self) -> None:
        self._start = self._now()

    def share(self) -> float:
        """Share of all CPUs that others took since this object was made, 0 to 1."""
        (machine, ours, when), (machine_then, ours_then, when_then) = self._now(), self._start
        taken = (machine - machine_then) - (ours - ours_then)
        return max(0.0, taken / ((when - when_then) * (psutil.cpu_count() or 1)))

    @staticmethod
    def _now() -> tuple[float, float, float]:
        times = psutil.cpu_times()
        machine = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
        ours = 0.0
        root = psutil.Process()
        for process in (root, *root.children(recursive=True)):
            try:
                used = process.cpu_times()
            except psutil.Error:
                continue
            ours += used.user + used.system
        return machine, ours, time.monotonic()


if __name__ == "__main__":
    print(_copy_on_gpu())
