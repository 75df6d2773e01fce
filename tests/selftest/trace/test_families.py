"""Kernel names, as profilers show them, and the family, operation and work that they stand for."""

from __future__ import annotations

import pytest

from glm5check.evidence import Family, Operation, Work
from glm5check.trace.families import BACKEND_FAMILIES, collective_of, work_of, writes_kv_cache


@pytest.mark.parametrize(
    ("name", "family", "operation"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Family.NCCL, Operation.ALL_REDUCE),
        ("ncclDevKernel_AllReduce_Sum_f16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", Family.NCCL, Operation.ALL_REDUCE),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", Family.NCCL, Operation.ALL_REDUCE),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Family.NCCL, Operation.ALL_GATHER),
        ("ncclDevKernel_Generic_4", Family.NCCL, Operation.UNKNOWN),
        ("ncclSymDevKernel_AllReduce_AGxLLMC_R_sum_bf16", Family.NCCL_SYMMETRIC, Operation.ALL_REDUCE),
        ("ncclSymkDevKernel_AllReduce_RSxTmaLD_AGxTmaST_sum_bf16", Family.NCCL_SYMMETRIC, Operation.ALL_REDUCE),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", Family.VLLM_CUSTOM, Operation.ALL_REDUCE),
        ("void vllm::cross_device_reduce_2stage<half, 8>(vllm::RankData*)", Family.VLLM_CUSTOM, Operation.ALL_REDUCE),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<3, __nv_bfloat16, 8>(...)", Family.FLASHINFER_FUSED, Operation.ALL_REDUCE),
        ("allreduce_fusion_kernel_twoshot_sync", Family.FLASHINFER_FUSED, Operation.ALL_REDUCE),
        ("void oneshotAllreduceFusionKernel<8, float>(...)", Family.FLASHINFER_FUSED, Operation.ALL_REDUCE),
        ("void twoshotAllreduceKernel<8, float>(...)", Family.FLASHINFER, Operation.ALL_REDUCE),
        ("ipc_topo_rsag8_ring_push_param_kernel", Family.FLASHINFER, Operation.ALL_REDUCE),
        ("push_oneshot_param_kernel", Family.FLASHINFER, Operation.ALL_REDUCE),
        ("multimem_all_reduce_kernel<16>", Family.TORCH_SYMMETRIC, Operation.ALL_REDUCE),
        ("two_shot_all_reduce_kernel_inplace", Family.TORCH_SYMMETRIC, Operation.ALL_REDUCE),
        ("void quickreduce::allreduce_prototype_twoshot<...>", Family.QUICK_REDUCE, Operation.ALL_REDUCE),
    ],
)  # fmt: skip
def test_collectives(name: str, family: Family, operation: Operation) -> None:
    assert collective_of(name) == (family, operation)
    assert work_of(name) is (Work.ALL_REDUCE if operation is Operation.ALL_REDUCE else Work.COLLECTIVE)


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
