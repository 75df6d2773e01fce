"""Each CPU kernel against plain arithmetic on the dequantised weights."""

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize

from glm5check.vllm_plugin import cpu_kernels

Q8_0, Q4_0 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0
EXPERTS, ROWS, COLUMNS = 5, 6, 64


def quantised(qtype, *shape):
    """Random weights: raw bytes as a parameter, and what they stand for."""
    raw = quantize(np.random.default_rng(3).standard_normal(shape, np.float32), qtype)
    return torch.nn.Parameter(torch.tensor(raw), requires_grad=False), torch.tensor(dequantize(raw, qtype))


def activations(tokens):
    return torch.randn(tokens, COLUMNS, generator=torch.Generator().manual_seed(4))


def routed(x, weights, ids, top_k):
    pairs = [x[i // top_k] @ weights[expert].T for i, expert in enumerate(ids.flatten().tolist())]
    return torch.stack(pairs)


@pytest.mark.parametrize("qtype", [Q8_0, Q4_0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dequantise_gives_the_reference_in_every_type(qtype, dtype):
    raw, weights = quantised(qtype, ROWS, COLUMNS)
    assert torch.equal(cpu_kernels.ggml_dequantize(raw, qtype, ROWS, COLUMNS, dtype), weights.to(dtype))


def test_dequantise_without_a_type_gives_float16_as_the_cuda_kernel_does():
    raw, _ = quantised(Q8_0, ROWS, COLUMNS)
    assert cpu_kernels.ggml_dequantize(raw, Q8_0, ROWS, COLUMNS, None).dtype is torch.float16


@pytest.mark.parametrize("tokens", [1, 9])
def test_mul_mat_multiplies_with_the_dequantised_weights(tokens):
    raw, weights = quantised(Q8_0, ROWS, COLUMNS)
    x = activations(tokens)
    torch.testing.assert_close(cpu_kernels.ggml_mul_mat_a8(raw, x, Q8_0, ROWS), x @ weights.T)


@pytest.mark.parametrize("top_k", [1, 3])
def test_moe_vec_sends_each_pair_through_its_expert(top_k):
    raw, weights = quantised(Q4_0, EXPERTS, ROWS, COLUMNS)
    x, ids = activations(4), torch.randint(0, EXPERTS, (4, top_k), generator=torch.Generator().manual_seed(5))
    got = cpu_kernels.ggml_moe_a8_vec(x, raw, ids, top_k, Q4_0, ROWS, 4)
    torch.testing.assert_close(got, routed(x, weights, ids, top_k))


@pytest.mark.parametrize("tokens", [1, 65, 100])
def test_moe_with_sorted_pairs_equals_moe_vec(tokens):
    raw, weights = quantised(Q4_0, EXPERTS, ROWS, COLUMNS)
    x, ids = activations(tokens), torch.randint(0, EXPERTS, (tokens, 2), generator=torch.Generator().manual_seed(6))
    aligned = cpu_kernels.moe_align_block_size(ids, cpu_kernels.ggml_moe_get_block_size(Q4_0), EXPERTS)
    got = cpu_kernels.ggml_moe_a8(x, raw, *aligned, Q4_0, ROWS, 2, tokens)
    torch.testing.assert_close(got, routed(x, weights, ids, 2))


def test_moe_follows_the_expert_of_each_block():
    """The check of the checks above: with two blocks' experts swapped the result must differ."""
    raw, weights = quantised(Q4_0, EXPERTS, ROWS, COLUMNS)
    x, ids = activations(2), torch.tensor([[0], [1]])
    pairs, owners, length = cpu_kernels.moe_align_block_size(ids, 16, EXPERTS)
    swapped = cpu_kernels.ggml_moe_a8(x, raw, pairs, owners.flip(0), length, Q4_0, ROWS, 1, 2)
    torch.testing.assert_close(swapped, routed(x, weights, torch.tensor([1, 0]), 1))


@pytest.mark.parametrize("block", [4, 16])
def test_align_places_every_pair_once_in_a_block_of_its_expert(block):
    ids = torch.randint(0, EXPERTS, (33, 2), generator=torch.Generator().manual_seed(7))
    pairs, owners, length = cpu_kernels.moe_align_block_size(ids, block, EXPERTS)
    assert len(pairs) == int(length) == len(owners) * block
    real = pairs < ids.numel()
    assert sorted(pairs[real].tolist()) == list(range(ids.numel()))
    assert torch.equal(owners.repeat_interleave(block)[real].long(), ids.flatten()[pairs[real].long()])
    assert set(pairs[~real].tolist()) <= {ids.numel()}


def test_sum_adds_the_choices_of_a_token():
    inputs, output = torch.arange(12.0).reshape(2, 3, 2), torch.empty(2, 2)
    cpu_kernels.moe_sum(inputs, output)
    assert output.tolist() == [[6, 9], [24, 27]]


def test_a_parameter_is_dequantised_once_for_each_type():
    raw, _ = quantised(Q8_0, ROWS, COLUMNS)
    x = activations(1)
    first = cpu_kernels.ggml_mul_mat_a8(raw, x, Q8_0, ROWS)
    raw.data.zero_()
    assert torch.equal(cpu_kernels.ggml_mul_mat_a8(raw, x, Q8_0, ROWS), first)
    assert cpu_kernels.ggml_mul_mat_a8(raw, x.to(torch.bfloat16), Q8_0, ROWS).abs().sum() == 0


def test_a_temporary_is_never_cached():
    raw, _ = quantised(Q8_0, ROWS, COLUMNS)
    temporary = raw[:2].contiguous()
    cpu_kernels.ggml_mul_mat_a8(temporary, activations(1), Q8_0, 2)
    assert not hasattr(temporary, cpu_kernels.CACHE)
