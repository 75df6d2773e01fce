"""NCCL's own log (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING) of one rank: how often the host called it.

NCCL 2.26 to 2.30 log a COLL line when the host enqueues a collective. A graph that replays makes no host call, so a
decode step whose all-reduces are all in graphs is silent about them. The logits' all-gather is eager in every vLLM
version, so it counts the steps: without it, silence would prove nothing. The two may use different communicators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from glm5check.evidence import NcclChoice, NcclCounts
from glm5check.trace.lines import read_lines

_CALL: Final = re.compile(r"NCCL INFO (\w+): opCount \w+ .*? count (\d{1,18}) .*?\[nranks=(\d{1,6})\]")
_CHOICE: Final = re.compile(r"NCCL INFO (\w+): (\d{1,18}) Bytes -> Algo (\w+) proto (\w+)")
_TRANSPORT: Final = re.compile(r"NCCL INFO Channel \d+(?:/\d+)? : .* via (\S+)")
_RANK: Final = re.compile(r"ncclCommInitRank\w* comm \w+ rank (\d{1,6}) nranks (\d{1,6}) ")


@dataclass(slots=True)
class _Reading:
    """Calls in order ("R" an all-reduce, "G" an all-gather), and what NCCL said about itself."""

    calls: bytearray
    choices: dict[NcclChoice, None]
    transports: dict[str, int]
    rank: int | None = None
    ranks: int = 0


def _read(lines: Iterable[str]) -> _Reading:
    reading = _Reading(bytearray(), {}, {})
    for line in lines:
        if "NCCL INFO" not in line:
            continue
        call = _CALL.search(line)
        if call:
            if int(call[3]) > 1 and call[1] in ("AllReduce", "AllGather"):
                reading.calls += b"R" if call[1] == "AllReduce" else b"G"
            continue
        choice, transport, rank = _CHOICE.search(line), _TRANSPORT.search(line), _RANK.search(line)
        if choice:
            reading.choices[NcclChoice(choice[1], int(choice[2]), choice[3], choice[4])] = None
        elif transport:
            reading.transports[transport[1]] = reading.transports.get(transport[1], 0) + 1
        elif rank and int(rank[2]) >= reading.ranks:
            reading.rank, reading.ranks = int(rank[1]), int(rank[2])
    return reading


def nccl_counts(lines: Iterable[str], source: str = "NCCL log", *, last_steps: int) -> NcclCounts:
    """Count host calls in the log's last `last_steps` steps, a step being an all-gather and what led up to it.

    For a log that was recorded whole: the end of it is decode, the start is warm-up and capture.
    """
    reading = _read(lines)
    calls, steps = reading.calls, min(last_steps, max(0, reading.calls.count(b"G") - 1))
    # The window begins after an all-gather, so that what came before the first one, start-up, is never in it.
    begin = len(calls)
    for _ in range(steps + 1):
        begin = calls.rfind(b"G", 0, begin)
    return _counts(reading, calls[begin + 1 :], source, f"the last {steps} all-gathers of the log")


def nccl_counts_since(path: Path, offset: int) -> NcclCounts:
    """Count the host calls that a live log gained since it was `offset` bytes long; raises TraceError if unreadable."""
    now, whole = _read(read_lines(path, offset=offset)), _read(read_lines(path))
    return _counts(whole, now.calls, path.name, f"what was logged after byte {offset:,}")


def read_nccl_log(path: Path, *, last_steps: int) -> NcclCounts:
    """Read one rank's NCCL log, plain or gzipped, as `nccl_counts` does; raises TraceError if it cannot be read."""
    return nccl_counts(read_lines(path), path.name, last_steps=last_steps)


def _counts(reading: _Reading, window: bytearray, source: str, what: str) -> NcclCounts:
    return NcclCounts(
        source=source,
        rank=reading.rank,
        window=what,
        all_reduces=window.count(b"R"),
        all_gathers=window.count(b"G"),
        total_all_reduces=reading.calls.count(b"R"),
        total_all_gathers=reading.calls.count(b"G"),
        choices=tuple(reading.choices),
        transports=reading.transports,
    )
