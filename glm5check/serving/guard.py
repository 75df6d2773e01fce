"""The process between us and vLLM: whatever becomes of the caller, it takes the server down and cleans up.

    python -m glm5check.serving.guard COMMAND...

The caller holds the other end of our standard input and never writes to it. When that end closes (the caller
stopped us, ended, or was killed with SIGKILL), or when we get SIGTERM, the server and all its descendants are ended and
the shared-memory files that they had mapped are removed. When the server ends on its own, we end with its exit status.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Final

import psutil

POLL_S: Final = 0.5
TERM_GRACE_S: Final = 8.0
_SHARED_MEMORY: Final = re.compile(r"/dev/shm/(?:psm_|vllm_|sem\.mp-|torch_|nccl-)\S*")  # noqa: S108 - where they are


class Guard:
    """Runs one command in its own session and remembers every descendant and shared-memory file it ever had."""

    def __init__(self, command: list[str]) -> None:
        self.server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self.descendants: dict[int, psutil.Process] = {}
        self.shared_memory: set[str] = set()

    def watch(self) -> int | None:
        """Return the server's exit status, or None when the caller let go."""
        while self.server.poll() is None:
            self._remember()
            readable, _, _ = select.select([sys.stdin], [], [], POLL_S)
            if readable and not os.read(sys.stdin.fileno(), 1):
                return None
        return self.server.returncode

    def clean(self) -> None:
        """End what still runs, gently first, and remove the shared-memory files that it leaves."""
        self._remember()
        if self.server.poll() is None:
            self.server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.server.wait(TERM_GRACE_S)
        self._remember()
        for process in self.descendants.values():
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(list(self.descendants.values()), timeout=TERM_GRACE_S)
        for path in self.shared_memory:
            Path(path).unlink(missing_ok=True)

    def _remember(self) -> None:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.server.pid)
            for process in (root, *root.children(recursive=True)):
                self.descendants[process.pid] = process
        self.shared_memory.update(_mapped_shared_memory(self.descendants))


def _mapped_shared_memory(pids: Iterable[int]) -> set[str]:
    found: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.update(_SHARED_MEMORY.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace")))
    return found


def _let_go(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, _let_go)
    # A Ctrl-C reaches the whole foreground group; the caller decides when we stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard = Guard(sys.argv[1:])
    status: int | None = None
    try:
        status = guard.watch()
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    finally:
        guard.clean()
    return 0 if status is None else status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
