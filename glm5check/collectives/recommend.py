"""What follows from a pre-flight for this model: the fastest right combination, and what it is worth per token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from glm5check.collectives.results import Combination, CombinationResult, Mode, Preflight, Status, Topology

_FLASHINFER_BY_DEFAULT: Final = (0, 29)
"""vLLM's release since which VLLM_ALLREDUCE_USE_FLASHINFER is on unless it is switched off."""
WORTH_A_CHANGE: Final = 0.05
"""Share of the all-reduce time that a change must save to be advised: less is within the noise of such timings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The model's all-reduces a decode step, and the bytes of one for one token."""

    all_reduces: int
    message_bytes: int


def dispatch_order(environment: Mapping[str, str], vllm_version: str) -> tuple[str, ...]:
    """The backends that a server with this environment asks for a small message, first to last."""
    release = tuple(int(part) for part in vllm_version.split(".")[:2] if part.isdigit())
    flashinfer = environment.get("VLLM_ALLREDUCE_USE_FLASHINFER", "1" if release >= _FLASHINFER_BY_DEFAULT else "0")
    switches = {
        "FLASHINFER_PCIE_IPC": environment.get("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC", "0"),
        "FLASHINFER": flashinfer,
        "CUSTOM": "1",
        "SYMM_MEM": environment.get("VLLM_ALLREDUCE_USE_SYMM_MEM", "1"),
        "PYNCCL": "0" if environment.get("VLLM_DISABLE_PYNCCL", "").lower() in ("1", "true") else "1",
        "TORCH": "1",
    }
    return tuple(backend for backend, switch in switches.items() if switch == "1")


def current(preflight: Preflight, environment: Mapping[str, str], message_bytes: int) -> CombinationResult | None:
    """What vLLM takes by itself: the first backend in its order that works here and takes this message."""
    version = preflight.versions.get("vllm", "")
    for backend in dispatch_order(environment, version):
        for result in preflight.results:
            usable = result.combination == Combination(backend) and result.status is Status.RIGHT
            if usable and result.latency(message_bytes) is not None and message_bytes not in result.refused_bytes:
                return result
    return None


def advise(preflight: Preflight, counts: Counts, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Sentences: what never to use, what to set, what it changes per token, and what not to bother with here.

    `environment` is the server's.
    """
    results, size = preflight.results, counts.message_bytes
    advice = [
        f"never use {result.combination}: {_why(result)}"
        for result in results
        if result.status in (Status.WRONG, Status.HUNG, Status.CRASHED)
    ]
    right = [result for result in results if result.status is Status.RIGHT and result.latency(size)]
    now = current(preflight, environment, size)
    if preflight.is_rehearsal:
        return (*advice, "a rehearsal on a CPU says nothing about speed")
    if now is None or not right:
        return (
            *advice,
            "no combination gave right results at this model's message size, so there is nothing to advise",
        )
    best = min(right, key=lambda result: _us(result, size))
    before, after = _us(now, size) * counts.all_reduces, _us(best, size) * counts.all_reduces
    cost = f"{counts.all_reduces} all-reduces of {size} bytes"
    if before - after > WORTH_A_CHANGE * before:
        advice.append(
            f"{setting(best.combination)}: {cost} then take {after / 1e3:.2f} ms a token instead of {before / 1e3:.2f} "
            f"({now.combination}), {(before - after) / 1e3:.2f} ms less"
        )
    else:
        advice.append(f"leave {now.combination} as it is: {cost} take {before / 1e3:.2f} ms a token, nothing is faster")
    return (*advice, *_impossible(preflight.topology))


def _us(result: CombinationResult, size: int) -> float:
    row = result.latency(size, Mode.REPLAY)
    assert row is not None
    return row.median_us


def _why(result: CombinationResult) -> str:
    if result.status is Status.WRONG:
        first = result.wrong[0]
        return f"wrong answers, first at {first.size_bytes} bytes ({first.mode}, rank {first.rank}): {first.what}"
    return f"it {result.status}"


def setting(combination: Combination) -> str:
    """How a vLLM server is told to use a combination."""
    environment = [f"{name}={value}" for name, value in combination.environment.items()]
    flags = {
        "PYNCCL": ["--disable-custom-all-reduce", "VLLM_ALLREDUCE_USE_FLASHINFER=0", "VLLM_ALLREDUCE_USE_SYMM_MEM=0"],
        "CUSTOM": ["VLLM_ALLREDUCE_USE_FLASHINFER=0"],
        "FLASHINFER": ["VLLM_ALLREDUCE_USE_FLASHINFER=1"],
        "FLASHINFER_PCIE_IPC": ["VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC=1"],
        "SYMM_MEM": ["--disable-custom-all-reduce", "VLLM_ALLREDUCE_USE_SYMM_MEM=1"],
        "TORCH": ["VLLM_DISABLE_PYNCCL=1"],
    }.get(combination.backend, [])
    return f"use {combination} (set {' '.join([*environment, *flags])})"


def _impossible(topology: Topology) -> list[str]:
    """What others recommend and this machine cannot do."""
    if not topology.gpus or topology.has_nvlink:
        return []
    sentences = [
        "all-reduce + RMSNorm fusion is no option here: it needs NVLink or multicast, and these GPUs have PCIe only"
    ]
    if len(topology.gpus) > 2:
        sentences.append("vLLM's custom all-reduce is no option here: it refuses more than two PCIe-only GPUs")
    if topology.no_peer_access:
        pairs = ", ".join(topology.no_peer_access)
        sentences.append(
            f"GPUs {pairs} have no peer access, so NCCL copies through host memory: check ACS, IOMMU, NCCL_P2P_DISABLE"
        )
    return sentences
