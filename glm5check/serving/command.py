"""The command line and environment that vLLM is started with."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from glm5check.errors import OptionError, ServerError
from glm5check.settings import Settings

LOOPBACK: Final = "127.0.0.1"
DEFAULT_NAME: Final = "glm5"
CPU_MAX_SEQUENCES: Final = 8
CPU_KV_BLOCKS: Final = 300
"""Enough for CPU_MAX_SEQUENCES contexts of 512 tokens in blocks of 16, and 1 GiB a rank less than vLLM's default."""

CPU_NICENESS: Final = 10
"""Ranks on CPUs never stop to wait, and hold up the client that times them on the same cores: on two it waited 9 ms for
each answer and saw 2 to 4 % of tokens late that were not; with this, 0.01 ms, and none."""
CPU_ENVIRONMENT: Final = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
ENVIRONMENT: Final = {
    # Our entry point registers the GGUF plugin itself, after preparing what it imports.
    "VLLM_PLUGINS": "a_glm5check",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # Mounts /server_info and /collective_rpc, which the evidence needs; safe since only loopback is listened on.
    "VLLM_SERVER_DEV_MODE": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """One server to start: everything that decides how it behaves, and where it writes."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    base_url: str
    served_model: str
    device: str
    niceness: int
    log_path: Path
    profile_dir: Path
    nccl_log_pattern: str


def plan_launch(settings: Settings, config: Mapping[str, Any], directory: Path, *, gpus: int) -> LaunchPlan:
    """Plan a server for `settings`.

    `config` is the parsed HF config, `directory` receives log and profiles, `gpus` is how many this machine has.
    Raises OptionError when the machine cannot serve what was asked for, ServerError when a port is taken.
    """
    device = _device(settings, gpus)
    port = _port(settings.serve_args)
    profile_dir = directory / "profile"
    name = settings.served_model or DEFAULT_NAME
    own = [
        *("--model", str(settings.model), "--served-model-name", name),
        *("--tokenizer", str(settings.config), "--hf-config-path", str(settings.config)),
        *("--tensor-parallel-size", str(settings.ranks), "--host", LOOPBACK),
        *("--generation-config", "vllm", "--worker-extension-cls", "glm5check.vllm_plugin.probe.Probe"),
        *("--profiler-config", json.dumps(_profiler(profile_dir))),
    ]
    if "--port" not in _names(settings.serve_args):
        own += ["--port", str(port)]
    if settings.embedded or device == "cpu":
        # Dense attention is exact up to there, and the only kind that CPUs have.
        own += ["--max-model-len", str(config["index_topk"]), "--max-logprobs", "-1"]
    if device == "cpu":
        own += ["--dtype", "float32", "--enforce-eager", "--max-num-seqs", str(CPU_MAX_SEQUENCES)]
        own += ["--num-gpu-blocks-override", str(CPU_KV_BLOCKS)]
    else:
        own += ["--cudagraph-metrics"]
    nccl = str(directory / "nccl.%h.%p.log")
    return LaunchPlan(
        command=(sys.executable, "-m", "vllm.entrypoints.openai.api_server", *own, *_split(settings.serve_args)),
        environment=_environment(settings, device, nccl),
        served_model=name,
        base_url=f"http://{LOOPBACK}:{port}",
        device=device,
        niceness=CPU_NICENESS if device == "cpu" else 0,
        log_path=directory / "server.log",
        profile_dir=profile_dir,
        nccl_log_pattern=nccl,
    )


def _device(settings: Settings, gpus: int) -> str:
    if gpus >= settings.ranks:
        return "gpu"
    if gpus == 0 and _is_cpu_build():
        return "cpu"
    raise OptionError(
        f"{settings.ranks} GPUs are asked for, this machine has {gpus}",
        do=f"give --glm5-gpus the number to use (1 to {gpus})"
        if gpus
        else "run it on a machine with GPUs, or leave out --glm5-model to check the embedded tiny model on the CPU",
    )


def _is_cpu_build() -> bool:
    return any(distribution.metadata["Name"] == "vllm-cpu" for distribution in metadata.distributions())


def _environment(settings: Settings, device: str, nccl_log: str) -> dict[str, str]:
    ours = dict(ENVIRONMENT)
    if device == "cpu":
        ours |= CPU_ENVIRONMENT
    else:
        # Host-side calls only: silent during graph replay, which is the evidence.
        ours |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL,TUNING,GRAPH,ENV", "NCCL_DEBUG_FILE": nccl_log}
    # What the user exported wins, except for what the options say.
    environment = ours | dict(os.environ)
    environment |= {"GLM5CHECK_FIXES": settings.fixes, "GLM5CHECK_FAULTS": ",".join(settings.faults)}
    if settings.api_key:
        environment["VLLM_API_KEY"] = settings.api_key
    return environment


def _profiler(directory: Path) -> dict[str, Any]:
    return {
        "profiler": "torch",
        "torch_profiler_dir": str(directory),
        "torch_profiler_with_stack": False,
        "torch_profiler_dump_cuda_time_total": False,
        "ignore_frontend": True,
    }


def _split(serve_args: Sequence[str]) -> list[str]:
    """`--name value` in one option becomes two words; `--name=value` stays one, whatever blanks the value has."""
    return [
        word
        for argument in serve_args
        for word in ([argument] if "=" in argument.split(" ")[0] else argument.split(" ", 1))
    ]


def _names(serve_args: Sequence[str]) -> set[str]:
    return {argument.split("=", 1)[0].split(" ", 1)[0] for argument in serve_args}


def _port(serve_args: Sequence[str]) -> int:
    if "--host" in _names(serve_args):
        raise OptionError("--glm5-serve-arg=--host is not taken: the server has developer routes", do="leave it out")
    words = [word for argument in _split(serve_args) for word in argument.split("=", 1)]
    port = int(words[words.index("--port") + 1]) if "--port" in words else 0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise ServerError(
                f"port {port} cannot be used: {error.strerror}",
                where=f"{LOOPBACK}:{port}",
                do="leave out --port to get a free one, or stop what listens there",
            ) from None
        return int(probe.getsockname()[1])
