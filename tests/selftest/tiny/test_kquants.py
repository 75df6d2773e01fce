"""The quantisers: as good as llama.cpp's, exact where the format can be, and clear about what they cannot do."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize

from glm5check.tiny.kquants import quantize

# Relative RMSE on normal weights that llama.cpp's own quantisers reach; ours may be 2 % worse.
LLAMA_CPP = {T.Q4_K: 0.0715, T.Q5_K: 0.0362, T.Q6_K: 0.0178, T.Q8_0: 0.0054}
SLACK = 1.02
BYTES = {T.Q4_K: 144, T.Q5_K: 176, T.Q6_K: 210}


def relative_error(weights, kind):
    back = dequantize(quantize(weights, kind), kind)
    return float(np.sqrt(np.square(back - weights).mean() / np.square(weights).mean()))


@pytest.mark.parametrize("kind", LLAMA_CPP, ids=lambda kind: kind.name)
@pytest.mark.parametrize("scale", [1e-3, 0.05, 10.0])
def test_error_is_that_of_llama_cpp(kind, scale):
    weights = np.random.default_rng(0).normal(size=(64, 1024)).astype(np.float32) * np.float32(scale)
    assert relative_error(weights, kind) < LLAMA_CPP[kind] * SLACK


@pytest.mark.parametrize("kind", BYTES, ids=lambda kind: kind.name)
def test_shape_is_rows_of_whole_blocks(kind):
    raw = quantize(np.zeros((2, 3, 512), np.float32), kind)
    assert (raw.shape, raw.dtype) == ((2, 3, 2 * BYTES[kind]), np.uint8)


@pytest.mark.parametrize("kind", BYTES, ids=lambda kind: kind.name)
def test_zeros_stay_zeros(kind):
    assert not dequantize(quantize(np.zeros((2, 256), np.float32), kind), kind).any()


@pytest.mark.parametrize("kind", BYTES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("value", [1.0, -1.0, 1e-6, 3e4])
def test_a_constant_is_kept_to_the_precision_of_the_scale(kind, value):
    """The scale is a 16-bit float, normal or not: 2^-10 of the value, or half of its smallest step times the levels."""
    back = dequantize(quantize(np.full((1, 256), value, np.float32), kind), kind)
    np.testing.assert_allclose(back, value, rtol=2e-3, atol=2**-25 * 63 * 31)


@pytest.mark.parametrize("kind", BYTES, ids=lambda kind: kind.name)
def test_one_large_weight_does_not_spoil_other_sub_blocks(kind):
    weights = np.full((1, 256), 0.01, np.float32)
    weights[0, 0] = 1.0
    back = dequantize(quantize(weights, kind), kind)
    assert abs(back[0, 0] - 1) < 0.05
    assert np.abs(back[0, 32:] - 0.01).max() < 0.01


def test_what_is_on_the_grid_comes_back_exactly():
    """Whole numbers with scale 1 in every sub-block: 0..15 (Q4_K), 0..31 (Q5_K), -32..31 (Q6_K)."""
    rng = np.random.default_rng(1)
    for kind, low, high, size, scales in ((T.Q4_K, 0, 15, 32, 63), (T.Q5_K, 0, 31, 32, 63), (T.Q6_K, -32, 31, 16, 127)):
        weights = rng.integers(low, high, (4, 256 // size, size), endpoint=True)
        weights[..., 0], weights[..., 1] = low, high
        # A factor that is exact in 16 bits when divided by the largest sub-block scale.
        values = (weights * scales).astype(np.float32).reshape(4, 256)
        np.testing.assert_array_equal(dequantize(quantize(values, kind), kind), values)


def test_columns_that_are_no_whole_super_block_are_refused():
    with pytest.raises(ValueError, match="192 columns"):
        quantize(np.zeros((1, 192), np.float32), T.Q4_K)


def test_a_type_without_a_quantiser_is_refused():
    with pytest.raises(ValueError, match="no quantiser for Q3_K"):
        quantize(np.zeros((1, 256), np.float32), T.Q3_K)
