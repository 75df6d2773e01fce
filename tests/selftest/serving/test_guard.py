"""Whatever becomes of the caller, the guarded server and its children go, and so do all files that they leave."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

SERVER = """
import mmap, os, subprocess, sys, tempfile, time
name = "/dev/shm/psm_glm5check_test_%d" % os.getpid()
with open(name, "w+b") as file:
    file.truncate(4096)
    held = mmap.mmap(file.fileno(), 4096)
stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", stubborn])
print(os.getpid(), child.pid, name, tempfile.mkstemp()[1], flush=True)
time.sleep(600)
"""
CALLER = """
import subprocess, sys, time
guard = [sys.executable, "-m", "glm5check.serving.guard", "0"]
subprocess.Popen([*guard, sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
time.sleep(600)
"""


def wait_until(condition, limit_s: float = 20.0) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def start():
    with contextlib.ExitStack() as opened:

        def start_one(command: list[str]) -> tuple[subprocess.Popen, int, int, Path, Path]:
            process = opened.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            server, child, shared, temporary = process.stdout.readline().split()
            time.sleep(1.2)  # two polls, so that the guard has seen the child and the mapping
            return process, int(server), int(child), Path(shared), Path(temporary)

        yield start_one


def all_gone(server: int, child: int, shared: Path, temporary: Path) -> bool:
    is_running = psutil.pid_exists(server) or psutil.pid_exists(child)
    return not (is_running or shared.exists() or temporary.parent.exists())


GUARD = [sys.executable, "-m", "glm5check.serving.guard", "3", sys.executable, "-c", SERVER]


def test_the_server_and_its_children_are_as_nice_as_asked_and_the_guard_is_not(start):
    guard, server, child, *_ = start(GUARD)
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in (guard.pid, server, child)] == [ours, ours + 3, ours + 3]
    group = Path(f"/proc/{child}/autogroup")
    if group.exists() and "nice" in (text := group.read_text()):
        assert text.split()[-1] == "3"


def test_everything_goes_when_the_caller_lets_go(start):
    guard, *things = start(GUARD)
    guard.stdin.close()
    assert wait_until(lambda: all_gone(*things))
    assert guard.wait(10) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_everything_goes_when_the_caller_is_killed(start, number):
    """SIGKILL leaves the caller no chance to clean up; the closed pipe tells the guard."""
    caller, *things = start([sys.executable, "-c", CALLER, SERVER])
    caller.send_signal(number)
    caller.wait(10)
    assert wait_until(lambda: all_gone(*things))


def test_everything_goes_when_the_guard_is_terminated(start):
    guard, *things = start(GUARD)
    guard.terminate()
    assert wait_until(lambda: all_gone(*things))


def test_children_go_when_the_server_dies_alone(start):
    guard, *things = start(GUARD)
    os.kill(things[0], signal.SIGKILL)
    assert wait_until(lambda: all_gone(*things))
    assert guard.wait(10) == 128 + signal.SIGKILL


def test_a_shared_memory_file_of_somebody_else_stays(start):
    other = Path("/dev/shm/psm_glm5check_somebody_else")
    other.touch()
    guard, *things = start(GUARD)
    guard.stdin.close()
    assert wait_until(lambda: all_gone(*things))
    assert other.exists()
    other.unlink()
