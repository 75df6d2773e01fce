"""Runs of pytest in processes of their own, each with a time limit; none of them outlives us, nor do their servers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from glm5check.errors import ReportError
from glm5check.reports import json_report
from glm5check.reports.model import Report

OUTPUT: Final = "output.txt"
TERM_GRACE_S: Final = 45.0
"""A run that is told to end still takes its server down: 30 s at most, and writes its report."""
CHILD_GRACE_S: Final = 15.0
"""Then its server's guard cleans up on its own."""
_TAIL_CHARACTERS: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended: `status` is None where it was cut off at its limit, `report` where it wrote none."""

    status: int | None
    seconds: float
    report: Report | None
    tail: str = ""
    """The end of what it printed."""

    @property
    def problem(self) -> str:
        """Why it says nothing; empty where it ran to its end."""
        if self.status is None:
            return f"cut off after {self.seconds:.0f} s"
        if self.report is None:
            return f"pytest ended with status {self.status} and without a report: {self.tail}"
        return "" if self.report.ended and not self.report.interruption else f"cut short: {self.report.interruption}"


class Runs:
    """Runs of pytest in the checkout `root`; `stop` ends those that are under way, in whatever threads they are."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._live: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(
        self, arguments: Sequence[str], directory: Path, *, limit_s: float, environment: Mapping[str, str]
    ) -> Ended:
        """Run pytest with `arguments`; report and output go to `directory`. Raises KeyboardInterrupt once stopped."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / json_report.FILE).unlink(missing_ok=True)
        own = ("-p", "no:cacheprovider", "-q", "--tb=short", f"--glm5-report={directory}")
        began = time.monotonic()
        with (directory / OUTPUT).open("wb") as sink:
            process = self._start([sys.executable, "-m", "pytest", *own, *arguments], sink.fileno(), environment)
            try:
                status: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                end(process)
                with self._lock:
                    self._live.discard(process)
        if self._stopped:
            raise KeyboardInterrupt
        seconds = time.monotonic() - began
        return Ended(status=status, seconds=seconds, report=_report(directory), tail=_tail(directory / OUTPUT))

    def stop(self) -> None:
        """End every run; no other can be started."""
        with self._lock:
            self._stopped = True
            live = list(self._live)
        for process in live:
            end(process)

    def _start(self, command: list[str], sink: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._live.add(process)
            return process


def end(process: subprocess.Popen[bytes]) -> None:
    """End a run and all that it started: gently, so that it takes its server down, then by force."""
    if process.poll() is not None:
        return
    children: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(TERM_GRACE_S)
    if process.poll() is None:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(children, timeout=CHILD_GRACE_S)
    for child in alive:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(alive, timeout=CHILD_GRACE_S)


def _report(directory: Path) -> Report | None:
    try:
        return json_report.read(directory / json_report.FILE)
    except ReportError:
        return None


def _tail(output: Path) -> str:
    return output.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:].strip()
