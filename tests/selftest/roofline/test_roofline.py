"""Bytes and bounds against numbers worked out by hand for GLM-5 itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from glm5check.errors import CheckpointError
from glm5check.glm5.dimensions import Dimensions
from glm5check.glm5.tensors import expected_tensors
from glm5check.roofline import Bound, Speeds, StepBytes, bound, cache_bytes, split_of, step_bytes

GLM5 = Dimensions(
    layers=78,
    nextn_layers=1,
    dense_layers=3,
    hidden=6144,
    vocab=154880,
    heads=64,
    q_lora=2048,
    kv_lora=512,
    nope=192,
    rope=64,
    value=256,
    dense_ffn=12288,
    expert_ffn=2048,
    experts=256,
    experts_used=8,
    shared_experts=1,
    groups=1,
    groups_used=1,
    gating="sigmoid",
    routed_scale=2.5,
    norm_topk=True,
    rms_eps=1e-5,
    rope_theta=1e6,
    context=202752,
    index_heads=32,
    index_head=128,
    index_topk=2048,
)


@dataclass(frozen=True)
class Tensor:
    name: str
    nbytes: int
    shape: tuple[int, ...]
    qtype: str = "one byte a weight"


TENSORS = [Tensor(spec.gguf, math.prod(spec.shape), spec.shape) for spec in expected_tensors(GLM5, nextn=True)]


def read(ranks: int, *, context: int = 1, batch: int = 1) -> StepBytes:
    return step_bytes(TENSORS, GLM5, ranks=ranks, context=context, batch=batch)


def test_one_rank_reads_the_40_8_billion_active_parameters() -> None:
    """ "744B-A40B", without the embedding: attention 13.60, routed 22.65, shared 2.83, dense 0.68, head 0.95."""
    step = read(1)
    assert step.total - step.cache == pytest.approx(40.83e9, rel=1e-3)
    assert step.experts == 75 * 3 * 8 * 2048 * 6144


def test_eight_ranks_do_not_read_an_eighth() -> None:
    """q_a, kv_a, the indexer and the router are on every rank: 2.11 billion, so 36 % more than an eighth."""
    step = read(8)
    assert step.replicated == pytest.approx(2.11e9, rel=2e-3)
    assert step.total - step.cache == pytest.approx(6.95e9, rel=1e-3)


@pytest.mark.parametrize(
    ("context", "latents", "keys"), [(1024, 1024, 1024), (8192, 2048, 8192), (131072, 2048, 131072)]
)
def test_sparse_attention_reads_at_most_top_k_latents_and_every_key(context: int, latents: int, keys: int) -> None:
    assert cache_bytes(GLM5, context, 2, sparse=True) == 78 * (latents * 576 * 2 + keys * 132)
    assert cache_bytes(GLM5, context, 2, sparse=False) == 78 * context * 576 * 2


def test_the_multi_token_block_is_not_read_by_plain_decode() -> None:
    without = [tensor for tensor in TENSORS if not tensor.name.startswith("blk.78.")]
    assert len(without) < len(TENSORS)
    assert step_bytes(without, GLM5, ranks=8, context=1) == read(8)


def test_a_batch_reads_more_experts_but_never_more_than_there_are() -> None:
    every_expert = 75 * 3 * 256 * 2048 * 6144 / 8
    sizes = [read(8, batch=batch).experts for batch in (1, 2, 8, 64, 4096)]
    assert sizes == sorted(sizes)
    assert sizes[1] == pytest.approx(sizes[0] * (2 - 8 / 256))
    assert sizes[-1] == pytest.approx(every_expert)


def test_the_bound_is_bytes_over_bandwidth_plus_157_all_reduces() -> None:
    speeds = Speeds(bandwidth=1.792e12, all_reduce=20.6e-6)
    limit = bound(read(8), GLM5, speeds, ranks=8)
    assert limit.parts["all-reduces"] == pytest.approx(157 * 20.6e-6)
    assert limit.step == pytest.approx(6.948e9 / 1.792e12 + 157 * 20.6e-6, rel=1e-3)
    assert limit.tokens_per_second == pytest.approx(1 / limit.step)
    assert bound(read(1), GLM5, speeds, ranks=1).parts["all-reduces"] == 0


def test_gains_say_what_each_part_would_give_back() -> None:
    limit = Bound(parts={"split weights": 0.004, "all-reduces": 0.006}, batch=1)
    assert limit.share(50) == pytest.approx(0.5)
    gains = limit.gains(50)
    assert gains == pytest.approx({"split weights": 1 / 0.016, "all-reduces": 1 / 0.014, "beyond the bound": 100})


def test_a_measurement_above_the_bound_has_no_gains() -> None:
    with pytest.raises(ValueError, match="above the bound of 100"):
        Bound(parts={"split weights": 0.01}, batch=1).gains(101)


@pytest.mark.parametrize("name", ["blk.3.attn_qkv.weight", "rope_freqs.weight", ""])
def test_a_tensor_that_glm5_does_not_have_is_not_counted_silently(name: str) -> None:
    with pytest.raises(CheckpointError, match="GLM-5 has none of this name"):
        split_of(name)
