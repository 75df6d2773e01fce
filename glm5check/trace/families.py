"""Which kernel name belongs to which collective implementation, and what work every other kernel does.

One table each. Names are those that a profiler shows (demangled where the compiler left a demangled name). A kernel's
name does not tell NCCL's protocol: NCCL compiles all-reduce kernels for the LL protocol only and passes the real one as
an argument, so `..._RING_LL` also runs Simple. The protocol comes from NCCL's TUNING log line.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from glm5check.evidence import Family, Operation, Work

_NCCL_OPERATIONS: Final = {
    "AllReduce": Operation.ALL_REDUCE,
    "AllGather": Operation.ALL_GATHER,
    "ReduceScatter": Operation.REDUCE_SCATTER,
    "Broadcast": Operation.BROADCAST,
    "SendRecv": Operation.SEND_RECV,
}

FAMILIES: Final[tuple[tuple[Family, Operation | None, re.Pattern[str]], ...]] = (
    # 2.27 says ncclSymDevKernel, 2.28 and later ncclSymkDevKernel.
    (Family.NCCL_SYMMETRIC, None, re.compile(r"ncclSymk?DevKernel_(?P<operation>[A-Za-z]+)")),
    # Before 2.19 ncclKernel_AllReduce_RING_LL_Sum_half, since then ncclDevKernel_AllReduce_Sum_bf16_RING_LL.
    (Family.NCCL, None, re.compile(r"nccl(?:Dev)?Kernel_(?P<operation>[A-Za-z]+)")),
    (Family.VLLM_CUSTOM, Operation.ALL_REDUCE, re.compile(r"\bcross_device_reduce_[12]stage\b")),
    (
        Family.FLASHINFER_FUSED,
        Operation.ALL_REDUCE,
        re.compile(r"allreduce_fusion_kernel_(?:oneshot_lamport|twoshot_sync)|oneshotAllreduceFusionKernel"),
    ),
    # The two-shot kernel of multi-node NVLink is followed by a kernel of its own for the norm.
    (Family.FLASHINFER, Operation.ALL_REDUCE, re.compile(r"\btwoshotAllreduceKernel")),
    (
        Family.FLASHINFER,
        Operation.ALL_REDUCE,
        re.compile(
            r"\bipc_topo_rsag8_\w+_kernel|\bipc_rsag_\w+_kernel|\bpush_oneshot_\w*kernel|\bipc_tp2_remote_push_"
        ),
    ),
    (
        Family.TORCH_SYMMETRIC,
        Operation.ALL_REDUCE,
        re.compile(r"\b(?:multimem_all_reduce|two_shot_all_reduce|one_shot_all_reduce)"),
    ),
    (Family.TORCH_SYMMETRIC, Operation.ALL_GATHER, re.compile(r"\bmultimem_all_gather")),
    (Family.QUICK_REDUCE, Operation.ALL_REDUCE, re.compile(r"\bquickreduce::|\ballreduce_prototype_twoshot")),
)

# vLLM's names of all-reduce backends, as in "Using [...] all-reduce backends", and the kernels that each launches.
BACKEND_FAMILIES: Final[dict[str, tuple[Family, ...]]] = {
    "PYNCCL": (Family.NCCL,),
    "NCCL_SYMM_MEM": (Family.NCCL_SYMMETRIC,),
    "CUSTOM": (Family.VLLM_CUSTOM,),
    "FLASHINFER": (Family.FLASHINFER, Family.FLASHINFER_FUSED),
    "FLASHINFER_PCIE_IPC": (Family.FLASHINFER,),
    "SYMM_MEM": (Family.TORCH_SYMMETRIC,),
    "QUICK_REDUCE": (Family.QUICK_REDUCE,),
}

_CACHE_WRITE: Final = re.compile(r"concat_and_cache_mla|reshape_and_cache|concat_and_cache_ds_mla")

_WORKS: Final[tuple[tuple[Work, re.Pattern[str]], ...]] = (
    (Work.MOE, re.compile(r"moe|topk_fused|expert|ggml_moe|grouped_gemm|cutlass.*Group(?:ed)?Gemm", re.IGNORECASE)),
    (
        Work.ATTENTION,
        re.compile(
            r"attention|attn|flash|mla|_fwd_grouped_kernel|_fwd_kernel_stage|_cache_|rotary|indexer|decode_splitkv|fmha",
            re.IGNORECASE,
        ),
    ),
    (
        Work.GEMM,
        re.compile(
            r"gemm|gemv|nvjet|cublas|splitKreduce|cutlass|mul_mat|mmvq|\bmmq|dequantize|quantize_q8|matmul",
            re.IGNORECASE,
        ),
    ),
)


@lru_cache(maxsize=8192)
def collective_of(name: str) -> tuple[Family, Operation] | None:
    """Family and operation of a collective's kernel, or None if the kernel is not one."""
    for family, operation, pattern in FAMILIES:
        match = pattern.search(name)
        if match:
            if operation is None:
                word = match["operation"]
                operation = _NCCL_OPERATIONS.get(word.removesuffix("V"), Operation.UNKNOWN)
            return family, operation
    return None


@lru_cache(maxsize=8192)
def work_of(name: str) -> Work:
    """What a kernel's time counts as; a collective by its operation, anything else by its name."""
    collective = collective_of(name)
    if collective is not None:
        return Work.ALL_REDUCE if collective[1] is Operation.ALL_REDUCE else Work.COLLECTIVE
    for work, pattern in _WORKS:
        if pattern.search(name):
            return work
    return Work.OTHER


@lru_cache(maxsize=8192)
def writes_kv_cache(name: str) -> bool:
    """Whether a kernel writes one layer's keys and values (or MLA latents) into the paged cache: one a layer."""
    return _CACHE_WRITE.search(name) is not None
