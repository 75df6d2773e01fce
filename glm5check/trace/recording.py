"""A recording: the directory, or the loose files, that hold what one server left behind while it decoded.

    *rank<N>*.pt.trace.json[.gz]   the torch profiler's trace of each rank
    server*.log[.gz]               the server's log
    nccl*.log[.gz]                 NCCL's log, one a rank (NCCL_DEBUG_FILE)
    server_info.json[.gz]          GET /server_info?config_format=json
    metrics.txt[.gz]               GET /metrics
    fingerprint.json               the run's fingerprint, name to value

Only the traces are required; a file that is there but unreadable is an error, never ignored.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from glm5check.errors import TraceError
from glm5check.evidence import RankTrace, Recording
from glm5check.tolerances import NCCL_QUIET_STEPS
from glm5check.trace.answers import read_fingerprint, read_inter_token_us, read_server_info
from glm5check.trace.nccl_log import read_nccl_log
from glm5check.trace.server_log import read_server_log
from glm5check.trace.steps import read_rank

_WORTH_A_PROCESS: Final = 2 << 20
_TRACE_ENDINGS: Final = (".pt.trace.json", ".pt.trace.json.gz")

_T = TypeVar("_T")


def find_traces(paths: Iterable[Path]) -> list[Path]:
    """Trace files among `paths`, directories searched (not deeper); front-end traces have no rank and are left out."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        found += [file for file in inside if not path.is_dir() or _is_rank_trace(file)]
    return found


def _is_rank_trace(path: Path) -> bool:
    return path.name.endswith(_TRACE_ENDINGS) and "rank" in path.name and "async_llm" not in path.name


def read_ranks(paths: Sequence[Path]) -> tuple[RankTrace, ...]:
    """Read trace files, one process a core if they are large. Result in rank order.

    Raises TraceError if one is unreadable or two claim the same rank.
    """
    total = sum(path.stat().st_size for path in paths if path.exists())
    workers = min(len(paths), os.cpu_count() or 1)
    if workers > 1 and total > _WORTH_A_PROCESS:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            ranks = list(pool.map(read_rank, paths))
    else:
        ranks = [read_rank(path) for path in paths]
    ranks.sort(key=lambda trace: trace.rank)
    for one, other in pairwise(ranks):
        if one.rank == other.rank:
            raise TraceError(
                f"{one.source} and {other.source} are both of rank {one.rank}",
                do="give one profile only: one file a rank, all from the same /start_profile",
            )
    return tuple(ranks)


def read_recording(paths: Sequence[Path]) -> Recording:
    """Read everything that `paths` (files, or directories with them) hold. Raises TraceError."""
    for path in paths:
        if not path.exists():
            raise TraceError("no such file or directory", where=str(path), do="check the path")
    directories = [path for path in paths if path.is_dir()]
    beside = sorted(file for directory in directories for file in directory.iterdir())
    traces = [path for path in find_traces(paths) if not _is_log(path)]
    logs = [path for path in [*beside, *paths] if path.is_file() and _is_log(path)]
    return Recording(
        source=", ".join(str(path) for path in paths),
        ranks=read_ranks(traces),
        facts=_one(logs, "server", read_server_log),
        info=_one(beside, "server_info.json", read_server_info),
        nccl=tuple(read_nccl_log(path, last_steps=NCCL_QUIET_STEPS) for path in logs if path.name.startswith("nccl")),
        inter_token_us=_one(beside, "metrics.txt", read_inter_token_us),
        fingerprint=_one(beside, "fingerprint.json", read_fingerprint) or {},
    )


def _is_log(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".log")


def _one(files: Sequence[Path], start: str, read: Callable[[Path], _T]) -> _T | None:
    """Read the one file whose name begins with `start`, if there is one; several are a TraceError."""
    found = [path for path in files if path.name.startswith(start)]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise TraceError(f"more than one file `{start}...`: {names}", do="give the files of one run only")
    return read(found[0]) if found else None
