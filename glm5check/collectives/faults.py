"""Seeded faults, to see the pre-flight catch them: what broken all-reduces have done on real machines.

stale     a replayed all-reduce leaves the result of the capture in the output
corrupt   rank 1's result has one run of 512 wrong bytes in large messages
deaf      rank 1 sums without rank 0
hang      rank 1 does not come to the second all-reduce of a message size
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
import torch.distributed as dist

from glm5check.collectives.backends import Backend
from glm5check.errors import OptionError

_CORRUPT_BYTES: Final = 512
_FOREVER: Final = 1e6


class _Wrapper:
    """A backend that passes everything on to another one."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        return self.inner.reduce(source)

    def refusal(self, source: torch.Tensor) -> str:
        return self.inner.refusal(source)

    @contextmanager
    def capturing(self, pool: object) -> Iterator[None]:
        with self.inner.capturing(pool):
            yield


class Stale(_Wrapper):
    """What is captured copies the last eager result of this size, and so does every replay of it."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.kept: dict[int, torch.Tensor] = {}
        self.captured: set[int] = set()
        self.is_capturing = False

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        size = len(source)
        if self.is_capturing:
            self.captured.add(size)
        if size not in self.captured:
            self.kept[size] = self.inner.reduce(source)
        return self.kept[size].clone()

    @contextmanager
    def capturing(self, pool: object) -> Iterator[None]:
        self.is_capturing = True
        with self.inner.capturing(pool):
            yield
        self.is_capturing = False


class Corrupt(_Wrapper):
    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        result = self.inner.reduce(source)
        elements = _CORRUPT_BYTES // result.element_size()
        if dist.get_rank() == 1 and len(result) > 4 * elements:
            middle = len(result) // 2
            result[middle : middle + elements] += 1
        return result


class Deaf(_Wrapper):
    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        # Rank 0 takes part with zeros, and gives itself its own share back.
        mute = dist.get_rank() == 0
        result = self.inner.reduce(torch.zeros_like(source) if mute else source)
        return result + source if mute else result


class Hang(_Wrapper):
    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.calls = 0

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if dist.get_rank() == 1 and self.calls == 2:
            time.sleep(_FOREVER)
        return self.inner.reduce(source)


FAULTS: Final[dict[str, type[_Wrapper]]] = {"stale": Stale, "corrupt": Corrupt, "deaf": Deaf, "hang": Hang}


def with_fault(backend: Backend, fault: str) -> Backend:
    """The backend with a fault in it, or as it is if `fault` is empty. Raises OptionError for an unknown name."""
    if not fault:
        return backend
    if fault not in FAULTS:
        raise OptionError(f"there is no fault {fault!r}", do=f"choose from {', '.join(FAULTS)}")
    return FAULTS[fault](backend)
