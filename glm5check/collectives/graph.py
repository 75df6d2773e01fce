"""An all-reduce that is captured once and replayed: a CUDA graph, or on a CPU a rehearsal with the same buffers.

The rehearsal calls the backend again at each replay, on the same input and output buffers: it proves the pre-flight's
own bookkeeping and sees a stale or partly written output, but it cannot see what only a real graph does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from glm5check.collectives.backends import Backend


class Captured:
    """`repeats` all-reduces of one input buffer, captured; who replays it rewrites `source` and poisons `output`."""

    def __init__(self, backend: Backend, source: torch.Tensor, repeats: int = 1) -> None:
        self.source = source
        self._replay: Callable[[], None]
        if source.device.type == "cuda":
            self._capture(backend, repeats)
        else:
            self._rehearse(backend, repeats)

    def _capture(self, backend: Backend, repeats: int) -> None:
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        backend.reduce(self.source)
        torch.cuda.synchronize()
        with backend.capturing(pool), torch.cuda.graph(graph, pool=pool):
            outputs = [backend.reduce(self.source) for _ in range(repeats)]
        self.output = outputs[-1]
        self._replay = graph.replay

    def _rehearse(self, backend: Backend, repeats: int) -> None:
        with backend.capturing(None):
            self.output = backend.reduce(self.source)

        def again() -> None:
            for _ in range(repeats):
                self.output.copy_(backend.reduce(self.source))

        self._replay = again

    def replay(self) -> None:
        """Launch it; on a GPU it is done when the stream is."""
        self._replay()


def poison(tensor: torch.Tensor) -> None:
    """Fill with NaN, which no sum of integers is, so that what is not written afterwards shows."""
    tensor.fill_(float("nan"))


def synchronize(device: torch.device) -> None:
    """Wait for the GPU; nothing to wait for on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed_us(device: torch.device, work: Callable[[], Any]) -> float:
    """Microseconds that `work` takes: on a GPU between events on its stream, on a CPU by the clock."""
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e6
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3
