"""A wrong set-up ends in seconds, in our words, without a traceback and with no process left behind.

Each case is a real `pytest` run in a process of its own; they run two at a time.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from fixtures.options import EMBEDDED

ROOT = Path(__file__).parents[3]
ONE_SERVED_TEST = "tests/decode/test_against_oracle.py::test_greedy_ids_follow_the_oracle"
LIMIT_S = 90
"""On two busy cores; the imports alone take ten seconds there. Nothing here waits for vLLM."""


@dataclass(frozen=True)
class Ended:
    status: int
    output: str
    seconds: float
    left_behind: tuple[str, ...]


def run_pytest(options: tuple[str, ...]) -> Ended:
    mark = f"bad-set-up-{id(options)}"
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-x", ONE_SERVED_TEST, *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "GLM5_TEST_RUN": mark},
    )
    output, _ = process.communicate(timeout=LIMIT_S)
    return Ended(process.returncode, output, time.monotonic() - start, marked_processes(mark))


def marked_processes(mark: str) -> tuple[str, ...]:
    """Command lines of processes that inherited the mark in their environment."""
    found = []
    for process in psutil.process_iter(["name"]):
        try:
            if process.environ().get("GLM5_TEST_RUN") == mark:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return tuple(found)


def tiny_copy(directory: Path) -> list[Path]:
    shutil.copytree(EMBEDDED, directory)
    return sorted(directory.glob("*.gguf"))


class OtherModel(BaseHTTPRequestHandler):
    """Lists a model; completes nothing."""

    model = "another-model"
    hangs = False

    def do_GET(self) -> None:
        self.reply({"data": [{"id": self.model}]})

    def do_POST(self) -> None:
        if self.hangs:
            time.sleep(60)
        self.reply({"choices": []})

    def reply(self, body: dict) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


class Hanging(OtherModel):
    model = "glm5"
    hangs = True


def serve(handler: type[BaseHTTPRequestHandler]) -> str:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    httpd.daemon_threads = True
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{httpd.server_port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> dict[str, Ended]:
    base = tmp_path_factory.mktemp("sets")
    swapped = tiny_copy(base / "swapped")
    spare = base / "spare"
    swapped[1].rename(spare)
    swapped[2].rename(swapped[1])
    spare.rename(swapped[2])
    deleted = tiny_copy(base / "deleted")
    deleted[1].unlink()
    cut = tiny_copy(base / "cut")
    cut[2].write_bytes(cut[2].read_bytes()[:-5000])
    other_config = base / "config"
    shutil.copytree(EMBEDDED, other_config, ignore=shutil.ignore_patterns("*.gguf"))
    config = json.loads((other_config / "config.json").read_text())
    (other_config / "config.json").write_text(json.dumps(config | {"hidden_size": 6144}))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = {
            "swapped": ("--glm5-model", str(swapped[0]), "--glm5-gpus", "2"),
            "deleted": ("--glm5-model", str(deleted[0]), "--glm5-gpus", "2"),
            "cut": ("--glm5-model", str(cut[0]), "--glm5-gpus", "2"),
            "config": ("--glm5-config", str(other_config)),
            "port": (f"--glm5-serve-arg=--port={taken.getsockname()[1]}",),
            "nowhere": ("--glm5-model", str(base / "nowhere.gguf")),
            "nothing": ("--glm5-attach", f"http://127.0.0.1:{free_port()}"),
            "another": ("--glm5-attach", serve(OtherModel), "--glm5-served-model", "glm5"),
            "hanging": ("--glm5-attach", serve(Hanging)),
        }
        with ThreadPoolExecutor(2) as pool:
            return dict(zip(options, pool.map(run_pytest, options.values()), strict=True))


EXPECTED = {
    "swapped": ("00002-of-00003", "what to do:"),
    "deleted": ("00002-of-00003", "missing", "what to do:"),
    "cut": ("00003-of-00003", "what to do: download that file again"),
    "config": ("hidden: 256 in the GGUF, 6144 in the config", "--glm5-config"),
    "port": ("cannot be used: Address already in use", "leave out --port"),
    "nowhere": ("there is no such file", "--glm5-model names the first file"),
    "nothing": ("the server cannot be reached", "check that it runs"),
    "another": ("serves another-model, not glm5", "--glm5-served-model"),
    "hanging": ("lists glm5 but does not complete one token", "restart it"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_wrong_set_up_is_told_in_our_words(ended, name):
    run = ended[name]
    assert run.status != 0
    for words in EXPECTED[name]:
        assert words in run.output
    assert "Traceback" not in run.output
    assert "site-packages" not in run.output
    assert not run.left_behind
