"""Kernel names, as profilers show them, and the family, operation and work that they stand for."""

from __future__ import annotations

import pytest

from glm5check.evidence import Family, Operation, Work
from glm5check.trace.families import BACKEND_FAMILIES, collective_of, work_of, writes_kv_cache

NCCL_ARGUMENT = "(ncclDevKernelArgsStorage<4096ul>)"
ALL_REDUCES = {
    Family.NCCL: [
        f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{NCCL_ARGUMENT}",
        f"ncclDevKernel_AllReduce_Sum_f16_TREE_LL{NCCL_ARGUMENT}",
        "ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)",
    ],
    Family.NCCL_SYMMETRIC: [
        "ncclSymDevKernel_AllReduce_AGxLLMC_R_sum_bf16",
        "ncclSymkDevKernel_AllReduce_RSxTmaLD_AGxTmaST_sum_bf16",
    ],
    Family.VLLM_CUSTOM: [
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
        "void vllm::cross_device_reduce_2stage<half, 8>(vllm::RankData*)",
    ],
    Family.FLASHINFER_FUSED: [
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<3, __nv_bfloat16, 8>(...)",
        "allreduce_fusion_kernel_twoshot_sync",
        "void oneshotAllreduceFusionKernel<8, float>(...)",
    ],
    Family.FLASHINFER: [
        "void twoshotAllreduceKernel<8, float>(...)",
        "ipc_topo_rsag8_ring_push_param_kernel",
        "push_oneshot_param_kernel",
    ],
    Family.TORCH_SYMMETRIC: ["multimem_all_reduce_kernel<16>", "two_shot_all_reduce_kernel_inplace"],
    Family.QUICK_REDUCE: ["void quickreduce::allreduce_prototype_twoshot<...>"],
}


@pytest.mark.parametrize(
    ("name", "family"), [(name, family) for family, names in ALL_REDUCES.items() for name in names]
)
def test_all_reduces(name: str, family: Family) -> None:
    assert collective_of(name) == (family, Operation.ALL_REDUCE)
    assert work_of(name) is Work.ALL_REDUCE


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        (f"ncclDevKernel_AllGather_RING_LL{NCCL_ARGUMENT}", Operation.ALL_GATHER),
        ("ncclDevKernel_Generic_4", Operation.UNKNOWN),
    ],
)
def test_other_collectives(name: str, operation: Operation) -> None:
    assert collective_of(name) == (Family.NCCL, operation)
    assert work_of(name) is Work.COLLECTIVE


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("fused_moe_kernel", Work.MOE),
        ("void vllm::moe::grouped_topk_fused_small_expert_count_kernel<__nv_bfloat16>", Work.MOE),
        ("_fwd_grouped_kernel_stage1", Work.ATTENTION),
        ("void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>", Work.ATTENTION),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90>>", Work.ATTENTION),
        ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", Work.GEMM),
        ("void mul_mat_vec_q4_K<__nv_bfloat16>", Work.GEMM),
        ("triton_red_fused_fused_add_rms_norm_2", Work.OTHER),
    ],
)
def test_other_work(name: str, work: Work) -> None:
    assert collective_of(name) is None
    assert work_of(name) is work


def test_cache_writes() -> None:
    assert writes_kv_cache("void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>")
    assert writes_kv_cache("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>")
    assert not writes_kv_cache("void vllm::gather_and_maybe_dequant_cache<__nv_bfloat16>")


def test_every_family_has_a_backend_that_leads_to_it() -> None:
    """Otherwise a server could choose a backend whose kernels the family check would call wrong."""
    assert {family for families in BACKEND_FAMILIES.values() for family in families} == set(Family)
