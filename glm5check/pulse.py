"""How much of the time a core of this machine is withheld from a process that has nothing else to do than to wake up.

What takes the cores need not be seen: another guest of the hypervisor does not count as anybody's time. A server on
the same cores does not show, since the process goes before it; a server that sleeps or computes too long does not
either. So this tells the machine's stalls from the server's. Other programs in this system do not show where the
process may go before them too: glm5check.calibration.Neighbours counts them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from multiprocessing.connection import Connection
from typing import Final

BEAT_S: Final = 0.005
"""Between two wake-ups: shorter than a decode step, and half a percent of a core."""
PROMPT_S: Final = 0.001
"""Lateness that is no sign of anything: timers take 0.1 ms, and a server that gives way 0.2."""


class Pulse:
    """A process that wakes up every BEAT_S on each core that we may use, until it is closed."""

    def __init__(self) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_beat, args=(theirs, sorted(os.sched_getaffinity(0))), daemon=True)
        self._process.start()
        theirs.close()
        self._since = self._now()

    def close(self) -> None:
        """End the process."""
        self._pipe.send(False)
        self._process.join(5)
        self._process.kill()

    def start(self) -> None:
        """Count from now on."""
        self._since = self._now()

    def withheld(self) -> float:
        """Share of the time since `start`, 0 to 1, by which wake-ups were late: that of the core where it was most."""
        held, now = self._now()
        held_then, then = self._since
        return max(late - late_then for late, late_then in zip(held, held_then, strict=True)) / (now - then)

    def _now(self) -> tuple[list[float], float]:
        self._pipe.send(True)
        return self._pipe.recv(), time.monotonic()


def _beat(pipe: Connection, cores: list[int]) -> None:
    late = [0.0] * len(cores)
    for place, core in enumerate(cores):
        threading.Thread(target=_beat_on, args=(core, late, place), daemon=True).start()
    while pipe.recv():
        pipe.send(late)


def _beat_on(core: int, late: list[float], place: int) -> None:
    os.sched_setaffinity(0, {core})  # of this thread
    # Niceness is not enough: Linux 6.18 was seen to let a nicer server end its slice, 5 ms at every wake-up for
    # seconds, with answers as fast as ever. Without the privilege such spells count: slow says nothing then.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    while True:
        start = time.perf_counter()
        time.sleep(BEAT_S)
        over = time.perf_counter() - start - BEAT_S
        if over > PROMPT_S:
            late[place] += over
