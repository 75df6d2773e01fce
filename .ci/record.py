"""Record decode steps of one model with full graphs, piecewise graphs and none: traces, logs, metrics, configuration.

python .ci/record.py MODEL_DIR OUT --gpus N

The servers start side by side, which takes no longer than one, and are asked in turn. Each configuration becomes a
directory as `glm5check trace` reads it; names and paths of this machine are replaced in every file, and so are secrets.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import socket
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from socket import AF_INET

import psutil

from glm5check.glm5.dimensions import read_hf_config
from glm5check.redaction import Redactor
from glm5check.serving.command import LaunchPlan, plan_launch
from glm5check.serving.launch import Server, launch
from glm5check.settings import Settings

CONFIGURATIONS = {
    "full": (),
    "piecewise": ('--compilation-config={"cudagraph_mode":"PIECEWISE"}',),
    "eager": ("--enforce-eager",),
}
# With its KV cache given, a server does not measure free memory, which the others are changing meanwhile.
SMALL = ("--max-model-len=2048", "--kv-cache-memory-bytes=4G", "--gpu-memory-utilization=0.1")
PROMPT = tuple(range(100, 148))
TIMED_TOKENS, TIMED_REQUESTS = 256, 4
PROFILED_TOKENS = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", type=int, required=True)
    given = parser.parse_args()
    plans = {
        name: plan(given.model, given.out / "run" / name, arguments, given.gpus)
        for name, arguments in CONFIGURATIONS.items()
    }
    with ExitStack() as running, ThreadPoolExecutor(len(plans)) as pool:
        started = {name: pool.submit(start, plan, given.gpus, running) for name, plan in plans.items()}
        for name, future in started.items():
            record(future.result(), given.out / name)
    for name in plans:
        collect(given.out / "run" / name, given.out / name, given.model)


def plan(model: Path, directory: Path, arguments: tuple[str, ...], gpus: int) -> LaunchPlan:
    """The server of one configuration."""
    typed = {"model": str(model), "gpus": str(gpus), "serve-arg": (*SMALL, *arguments)}
    settings = Settings.resolve(typed, embedded=model)
    return plan_launch(settings, read_hf_config(model), directory, gpus=gpus)


def start(plan: LaunchPlan, gpus: int, running: ExitStack) -> Server:
    """Start the server; `running` ends it."""
    return running.enter_context(launch(plan, ranks=gpus, progress=lambda line: print(line, flush=True)))


def record(server: Server, out: Path) -> None:
    """Time requests, then read metrics and configuration, then profile one short request."""
    out.mkdir(parents=True, exist_ok=True)
    speeds = []
    for number in range(TIMED_REQUESTS):
        begun = time.monotonic()
        server.client.complete(f"timed-{number}", PROMPT, max_tokens=TIMED_TOKENS, top=1, ignore_eos=True)
        speeds.append(TIMED_TOKENS / (time.monotonic() - begun))
    write(out / "metrics.txt.gz", server.client.metrics())
    write(out / "server_info.json.gz", json.dumps(server.client.server_info()))
    server.client.post("/start_profile")
    server.client.complete("profiled", PROMPT, max_tokens=PROFILED_TOKENS, top=1, ignore_eos=True)
    server.client.post("/stop_profile")
    print(f"{out.name}: {min(speeds):.0f} to {max(speeds):.0f} tok/s", flush=True)


def collect(run: Path, out: Path, model: Path) -> None:
    """Copy what the server left into `out`, and replace what names this machine in every file there."""
    found = {"server.log.gz": run / "server.log"}
    for path in (run / "profile").iterdir():
        if match := re.search(r"rank(\d+)", path.name):
            found[f"rank{match[1]}.pt.trace.json.gz"] = path
    found |= {f"nccl{number}.log.gz": path for number, path in enumerate(sorted(run.glob("nccl*.log")))}
    found |= {path.name: path for path in out.iterdir()}
    names = {str(run): "/run", str(model): "/model", sys.prefix: "/python", str(Path.home()): "/home"}
    names |= {f"{tempfile.gettempdir()}/": "/scratch/"} | dict.fromkeys(own_addresses(), "192.0.2.1")
    for name, path in found.items():
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")
        for given, neutral in names.items():
            text = text.replace(given, neutral)
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "host", text)
        write(out / name, Redactor(os.environ).hide(text))


def own_addresses() -> set[str]:
    """IPv4 addresses of this machine, without loopback."""
    entries = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    return {one.address for one in entries if one.family == AF_INET and not one.address.startswith("127.")}


def write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    sys.exit(main())
