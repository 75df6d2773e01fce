"""Start a server and wait until it really answers, or attach to one; stop what was started.

with launch(plan, ranks=2, progress=print) as server:
    server.client.complete(...)
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from glm5check.errors import ServerError
from glm5check.serving.client import Client
from glm5check.serving.command import LaunchPlan
from glm5check.serving.log import ServerLog

START_LIMIT_S: Final = {"cpu": 300.0, "gpu": 3600.0}
"""A CPU start takes under a minute; 467 GB of weights take half an hour from a slow disk."""
STOP_LIMIT_S: Final = 30.0
ATTACH_LIMIT_S: Final = 15.0
"""One token from a healthy server takes well under a second; a queue may add some."""
PROGRESS_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that has answered a completion.

    What was only known to whoever started it (log, command, profiles) is None for an attached one. `base_url` is where
    to connect to and may name a user; `client.base_url` may be shown.
    """

    base_url: str
    model: str
    client: Client
    device: str
    ranks: int | None
    log_path: Path | None = None
    profile_dir: Path | None = None
    nccl_log_pattern: str | None = None
    plan: LaunchPlan | None = None
    pid: int | None = None
    ready_after_s: float | None = None


@contextmanager
def launch(plan: LaunchPlan, *, ranks: int, api_key: str = "", progress: Callable[[str], None]) -> Iterator[Server]:
    """Start the planned server, wait for its first token, and end it and everything it left when the block ends.

    `progress` receives a line whenever there is something new to say. Raises ServerError with the first error and the
    last lines of the log if the server ends or does not answer within the limit.
    """
    plan.log_path.parent.mkdir(parents=True, exist_ok=True)
    log = ServerLog(plan.log_path)
    with plan.log_path.open("wb") as sink:
        guard = subprocess.Popen(
            [sys.executable, "-m", "glm5check.serving.guard", str(plan.niceness), *plan.command],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=dict(plan.environment),
            start_new_session=True,
        )
    client = Client(plan.base_url, plan.served_model, api_key=api_key)
    try:
        seconds = _wait_until_ready(guard, client, log, START_LIMIT_S[plan.device], progress)
        yield Server(
            base_url=plan.base_url,
            model=plan.served_model,
            client=client,
            device=plan.device,
            ranks=ranks,
            log_path=plan.log_path,
            profile_dir=plan.profile_dir,
            nccl_log_pattern=plan.nccl_log_pattern,
            plan=plan,
            pid=guard.pid,
            ready_after_s=seconds,
        )
    finally:
        client.close()
        _stop(guard)


@contextmanager
def attach(base_url: str, *, served_model: str | None, api_key: str = "") -> Iterator[Server]:
    """Attach to a running server after checking that it serves the model asked for and completes a token.

    With `served_model` None the server must serve exactly one model. Raises ServerError within seconds otherwise.
    """
    with Client(base_url, api_key=api_key, limit_s=ATTACH_LIMIT_S) as probe:
        names = [str(entry.get("id")) for entry in probe.models()]
        wanted = served_model if served_model else names[0] if len(names) == 1 else None
        if wanted not in names:
            raise ServerError(
                f"the server serves {', '.join(names) or 'nothing'}, not {wanted or 'one single model'}",
                where=probe.base_url,
                do="name the right one with --glm5-served-model, or attach to the right server",
            )
        probe.model = str(wanted)
        try:
            probe.ask_one_token()
        except ServerError as error:
            raise ServerError(
                f"the server lists {wanted} but does not complete one token: {error.what}",
                where=probe.base_url,
                do="its workers are probably dead or hanging: look at its log and restart it",
            ) from None
        is_vllm = bool(probe.version())
    with Client(base_url, str(wanted), api_key=api_key) as client:
        yield Server(
            base_url=base_url, model=str(wanted), client=client, device="gpu" if is_vllm else "other", ranks=None
        )


def _wait_until_ready(
    guard: subprocess.Popen[bytes], client: Client, log: ServerLog, limit_s: float, progress: Callable[[str], None]
) -> float:
    start = said_at = time.monotonic()
    said = ""
    while True:
        elapsed = time.monotonic() - start
        if guard.poll() is not None:
            raise _failure(f"vLLM ended with status {guard.returncode} after {elapsed:.0f} s", log)
        if elapsed > limit_s:
            raise _failure(f"vLLM gave no token within {limit_s:.0f} s; it was {log.phase()}", log)
        if _answers(client):
            progress(f"vLLM answers after {elapsed:.0f} s")
            return elapsed
        phase = log.phase()
        if phase != said or time.monotonic() - said_at >= PROGRESS_EVERY_S:
            progress(f"starting vLLM: {phase} ({elapsed:.0f} s)")
            said, said_at = phase, time.monotonic()
        time.sleep(0.5)


def _answers(client: Client) -> bool:
    """A real token, because a server with dead workers still answers /health."""
    try:
        client.models()  # refuses at once while the API is not open
    except ServerError:
        return False
    client.ask_one_token()
    return True


def _failure(what: str, log: ServerLog) -> ServerError:
    error = log.first_error()
    message = f"{what}\n  first error: {error or 'none in the log'}\n  last lines of its log:\n    "
    return ServerError(
        message + log.tail().replace("\n", "\n    "), where=str(log.path), do=_advice(error) or "read the whole log"
    )


def _advice(error: str) -> str:
    if "out of memory" in error.lower() or "OutOfMemory" in error:
        return "lower --glm5-serve-arg=--gpu-memory-utilization=, or free the GPUs"
    if "No space left" in error:
        return "free the disk or /dev/shm"
    return ""


def _stop(guard: subprocess.Popen[bytes]) -> None:
    if guard.stdin is not None:
        guard.stdin.close()
    try:
        guard.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
