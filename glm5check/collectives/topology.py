"""How this node's GPUs reach each other: NVLink or PCIe, peer access, NUMA nodes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from glm5check.collectives.results import Topology

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_LIMIT_S: Final = 60


def read_topology() -> Topology:
    """Ask nvidia-smi, the kernel and torch; without GPUs only the NUMA nodes are known."""
    text = _nvidia_smi("topo", "-m")
    names = tuple(
        line.strip() for line in _nvidia_smi("--query-gpu=name", "--format=csv,noheader").splitlines() if line
    )
    return Topology(
        gpus=names, links=links(text), no_peer_access=_no_peer_access(), numa_nodes=_numa_nodes(), text=text
    )


def links(text: str) -> dict[str, str]:
    """The pairs of GPUs in `nvidia-smi topo -m`, "0-1" to the word in the matrix; empty if there is none."""
    rows = [_COLOURS.sub("", line).split() for line in text.splitlines()]
    header = next((row for row in rows if row and row[0] == "GPU0"), [])
    gpus = [name for name in header if re.fullmatch(r"GPU\d+", name)]
    found = {}
    for row in rows:
        if len(row) > len(gpus) and row[0] in gpus and row is not header:
            one = gpus.index(row[0])
            for other in range(one + 1, len(gpus)):
                found[f"{one}-{other}"] = row[1 + other]
    return found


def _nvidia_smi(*arguments: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _numa_nodes() -> int:
    return max(1, len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))))


def _no_peer_access() -> tuple[str, ...]:
    """Pairs of GPUs that cannot read each other's memory."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return tuple(
        f"{one}-{other}"
        for one in range(count)
        for other in range(one + 1, count)
        if not torch.cuda.can_device_access_peer(one, other)
    )
