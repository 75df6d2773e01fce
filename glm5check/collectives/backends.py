"""The all-reduce implementations that vLLM chooses from, behind one call.

Each is made inside a torchrun process that has a gloo group for control. A backend that cannot be used here raises
UnavailableError with the reason; vLLM itself is only needed for its own backends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist

_HIDDEN: Final = 6144
"""GLM-5's hidden size: some backends are tuned for messages of whole tokens."""
_DECODE_BATCHES: Final = (1, 2, 4, 8)


class UnavailableError(Exception):
    """The backend cannot be used on this machine; the message says why."""


class Backend(Protocol):
    """One way to sum a tensor over all ranks."""

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        """Return the sum over ranks of `source`, which stays as it is."""
        ...

    def refusal(self, source: torch.Tensor) -> str:
        """Why it would leave this tensor to another backend; empty if it takes it."""
        ...

    def capturing(self, pool: object) -> AbstractContextManager[None]:
        """What has to be open while a CUDA graph with this backend in it is captured into memory pool `pool`."""
        ...


class _Plain:
    """What most backends share: they take every size and need nothing around a capture."""

    def refusal(self, source: torch.Tensor) -> str:
        return ""

    def capturing(self, pool: object) -> AbstractContextManager[None]:
        return nullcontext()


class Torch(_Plain):
    """torch.distributed: gloo on a CPU, NCCL on GPUs. What vLLM falls back to without its own NCCL binding."""

    def __init__(self, device: torch.device) -> None:
        self.group = dist.new_group(backend="nccl") if device.type == "cuda" else dist.group.WORLD

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        result = source.clone()
        dist.all_reduce(result, group=self.group)
        return result


class PyNccl(_Plain):
    """vLLM's own NCCL binding, what most deployments run: out of place, on the current stream."""

    def __init__(self, device: torch.device) -> None:
        from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator

        self.communicator: Any = PyNcclCommunicator(group=dist.group.WORLD, device=device)
        if self.communicator.disabled:
            raise UnavailableError("vLLM's NCCL binding disabled itself; its log lines above say why")

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.communicator.all_reduce(source)
        return result


class Custom(_Plain):
    """vLLM's custom all-reduce over peer access; refuses more than two GPUs without NVLink."""

    def __init__(self, device: torch.device) -> None:
        from vllm.distributed.device_communicators.custom_all_reduce import CustomAllreduce

        self.communicator: Any = CustomAllreduce(group=dist.group.WORLD, device=device)
        if self.communicator.disabled:
            raise UnavailableError("vLLM disables it here: no peer access, or more than two GPUs that only PCIe joins")

    def refusal(self, source: torch.Tensor) -> str:
        return "" if self.communicator.should_custom_ar(source) else "too large or not a multiple of 16 bytes"

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor | None = self.communicator.custom_all_reduce(source)
        assert result is not None
        return result

    @contextmanager
    def capturing(self, pool: object) -> Iterator[None]:
        # At its end the ranks exchange the addresses of the buffers that the graph reads.
        with self.communicator.capture():
            yield


class SymmetricMemory(_Plain):
    """torch's symmetric memory through vLLM: multicast or two-shot, NVLink only."""

    def __init__(self, device: torch.device) -> None:
        from vllm.distributed.device_communicators.symm_mem import SymmMemCommunicator

        self.communicator: Any = SymmMemCommunicator(group=dist.group.WORLD, device=device)
        if self.communicator.disabled:
            raise UnavailableError("vLLM disables it here: it needs NVLink with multicast, or a GPU type that it knows")

    def refusal(self, source: torch.Tensor) -> str:
        return "" if self.communicator.should_use_symm_mem(source) else "too large or not a multiple of 4 bytes"

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor | None = self.communicator.all_reduce(source)
        assert result is not None
        return result


class FlashInfer(_Plain):
    """FlashInfer's all-reduce through vLLM (0.29 and later by default)."""

    def __init__(self, device: torch.device) -> None:
        from vllm.distributed.device_communicators.flashinfer_all_reduce import FlashInferAllReduce

        self.communicator: Any = FlashInferAllReduce(group=dist.group.WORLD, device=device)
        if self.communicator.disabled:
            raise UnavailableError(
                "vLLM disables it here: FlashInfer is not installed, or it needs NVLink or multicast"
            )

    def refusal(self, source: torch.Tensor) -> str:
        return "" if self.communicator.should_use_fi_ar(source.view(1, -1)) else "outside of the sizes it is used for"

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        # FlashInfer wants tokens x hidden.
        result: torch.Tensor = self.communicator.all_reduce(source.view(1, -1))
        return result.view(-1)


class FlashInferPcieIpc(_Plain):
    """FlashInfer's all-reduce for GPUs that only PCIe joins (vLLM 0.30 and later, opt-in), tuned for decode batches."""

    def __init__(self, device: torch.device) -> None:
        from vllm.distributed.device_communicators.flashinfer_pcie_ipc_all_reduce import FlashInferPcieIpcAllReduce

        self.communicator: Any = FlashInferPcieIpcAllReduce(
            group=dist.new_group(backend="nccl"), tune_group=dist.group.WORLD, device=device
        )
        if not self.communicator.disabled:
            self.communicator.setup(
                hidden_dim=_HIDDEN,
                dtype=torch.bfloat16,
                capture_sizes=_DECODE_BATCHES,
                tune_cache=Path(tempfile.gettempdir()) / f"glm5check-pcie-ipc-{os.getpid()}.json",
            )
        if not self.communicator.initialized:
            raise UnavailableError("vLLM disables it here: FlashInfer does not have it, or not for this many GPUs")

    def refusal(self, source: torch.Tensor) -> str:
        if len(source) % _HIDDEN:
            return f"not a multiple of the hidden size {_HIDDEN}"
        return "" if self.communicator.should_use(source.view(-1, _HIDDEN)) else "not one of the captured batch sizes"

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.communicator.all_reduce(source.view(-1, _HIDDEN))
        return result.view(-1)

    @contextmanager
    def capturing(self, pool: object) -> Iterator[None]:
        with self.communicator.capture():
            yield


class NcclSymmetricMemory(PyNccl):
    """NCCL on symmetric memory: vLLM copies into a registered buffer and reduces there."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        from vllm.distributed.device_communicators.pynccl import register_nccl_symmetric_ops
        from vllm.distributed.device_communicators.pynccl_allocator import (
            get_nccl_mem_pool,
            is_symmetric_memory_enabled,
        )

        if not is_symmetric_memory_enabled() or get_nccl_mem_pool() is None:
            raise UnavailableError("vLLM cannot allocate NCCL's symmetric memory here")
        register_nccl_symmetric_ops(self.communicator)

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.vllm.all_reduce_symmetric_with_copy(source)
        return result

    @contextmanager
    def capturing(self, pool: object) -> Iterator[None]:
        from vllm.distributed.device_communicators.pynccl_allocator import set_graph_pool_id

        set_graph_pool_id(pool)
        yield


class QuickReduce(_Plain):
    """vLLM's quantising all-reduce, for MI300 only: never exact, so it is named and not run."""

    def __init__(self, device: torch.device) -> None:
        raise UnavailableError("only on AMD MI300, and it quantises: its sums are not exact by design")

    def reduce(self, source: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


BACKENDS: Final[dict[str, Callable[[torch.device], Backend]]] = {
    "TORCH": Torch,
    "PYNCCL": PyNccl,
    "CUSTOM": Custom,
    "SYMM_MEM": SymmetricMemory,
    "FLASHINFER": FlashInfer,
    "FLASHINFER_PCIE_IPC": FlashInferPcieIpc,
    "NCCL_SYMM_MEM": NcclSymmetricMemory,
    "QUICK_REDUCE": QuickReduce,
}


def make_backend(name: str, device: torch.device) -> Backend:
    """Make a backend by vLLM's name for it. Raises UnavailableError with the reason if it cannot be used here."""
    if device.type != "cuda" and name != "TORCH":
        raise UnavailableError("needs GPUs")
    try:
        return BACKENDS[name](device)
    except ImportError as error:
        raise UnavailableError(f"this installation does not have it ({error})") from error


def local_device() -> torch.device:
    """This process's GPU, by torchrun's LOCAL_RANK, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device
