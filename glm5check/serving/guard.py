"""The process between us and vLLM: whatever becomes of the caller, it takes the server down and cleans up.

    python -m glm5check.serving.guard NICENESS COMMAND...

The caller holds the other end of our standard input and never writes to it. When that end closes (the caller
stopped us, ended, or was killed with SIGKILL), or when we get SIGTERM, the server and all its descendants are ended and
the shared-memory files that they had mapped are removed, and so is the directory that was theirs for temporary files.
When the server ends on its own, we end with its exit status.
What the server and its descendants print goes through us to our standard output, without secrets: logs are passed on.
NICENESS is added to ours for the server, so that the caller goes first on cores that they share.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import IO, Final

import psutil

from glm5check.redaction import Redactor, secrets_in

POLL_S: Final = (0.5, 4.0)
"""Between looks at the descendants: the first while there are new ones. A look takes a server of 60 threads 10 ms."""
TERM_GRACE_S: Final = 8.0
LOG_GRACE_S: Final = 5.0
"""For the last lines of a server that is gone. Longer only if a descendant got away, which holds the pipe open."""
_LINE_END: Final = re.compile(rb"[\r\n]")
_SHARED_MEMORY: Final = re.compile(r"/dev/shm/(?:psm_|vllm_|sem\.mp-|torch_|nccl-)\S*")  # noqa: S108 - where they are


class Guard:
    """Runs one command in its own session and remembers every descendant and shared-memory file it ever had.

    vLLM leaves sockets and rendezvous files where temporary files go: its `temporary` directory.
    """

    def __init__(self, command: list[str], niceness: int, temporary: str) -> None:
        # What torch compiled would go with the directory; it stays where torch keeps it otherwise.
        compiled = f"{tempfile.gettempdir()}/torchinductor_{psutil.Process().username()}"
        self.server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"TORCHINDUCTOR_CACHE_DIR": compiled, **os.environ, "TMPDIR": temporary},
            start_new_session=True,
            bufsize=0,
        )
        assert self.server.stdout is not None
        _be_nice(self.server.pid, niceness)
        redactor = Redactor(os.environ, secrets_in(command))
        self._log = threading.Thread(target=_copy, args=(self.server.stdout, redactor), daemon=True)
        self._log.start()
        self.descendants: dict[int, psutil.Process] = {}
        self.shared_memory: set[str] = set()

    def watch(self) -> int | None:
        """Return the server's exit status, or None when the caller let go."""
        ended, pause = os.pidfd_open(self.server.pid), POLL_S[0]
        while self.server.poll() is None:
            known = len(self.descendants) + len(self.shared_memory)
            self._remember()
            is_new = len(self.descendants) + len(self.shared_memory) > known
            pause = POLL_S[0] if is_new else min(2 * pause, POLL_S[1])
            readable, _, _ = select.select([sys.stdin, ended], [], [], pause)
            if sys.stdin in readable and not os.read(sys.stdin.fileno(), 1):
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
        self._log.join(LOG_GRACE_S)

    def _remember(self) -> None:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.server.pid)
            for process in (root, *root.children(recursive=True)):
                self.descendants[process.pid] = process
        self.shared_memory.update(_mapped_shared_memory(self.descendants))


def _be_nice(pid: int, niceness: int) -> None:
    """Makes a process that leads a session nicer than we are, before it has children that would inherit it.

    Linux may group processes by session to share out the cores: then niceness within a session says nothing to others,
    and the group has its own.
    """
    # Not less nice than we are: without privileges that is refused.
    os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + niceness)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def _copy(source: IO[bytes], redactor: Redactor) -> None:
    """Copy whole lines, and those that end in a carriage return, as soon as they are there."""
    pending = b""
    while data := source.read(1 << 16):
        pending += data
        ends = [match.end() for match in _LINE_END.finditer(pending)]
        if ends:
            _print(pending[: ends[-1]], redactor)
            pending = pending[ends[-1] :]
    _print(pending, redactor)


def _print(text: bytes, redactor: Redactor) -> None:
    hidden = redactor.hide(text.decode("utf-8", "surrogateescape"))
    # Who reads it may be gone before we are; the server must not block on a pipe that nobody empties.
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), hidden.encode("utf-8", "surrogateescape"))


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
    status: int | None = None
    with tempfile.TemporaryDirectory(prefix="glm5check-", ignore_cleanup_errors=True) as temporary:
        guard = Guard(sys.argv[2:], int(sys.argv[1]), temporary)
        try:
            status = guard.watch()
        except KeyboardInterrupt:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        finally:
            guard.clean()
    return 0 if status is None else status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
