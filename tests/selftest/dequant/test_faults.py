"""Each check of `checks.dequant` sees the fault that it is for, and stays silent on a right kernel."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from fixtures.strategies import hold, ordinary_rows, raw_rows
from glm5check.checkpoint.dequant import QUANT_TYPES, dequantise
from glm5check.checks import dequant
from glm5check.errors import CheckpointError
from glm5check.records import Outcome

Q4_K, Q4_0, Q8_0 = GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q8_0
FAILED, PASSED = Outcome.FAILED, Outcome.PASSED
WHERE = {"type": "Q4_K"}


def outcomes(findings):
    return {finding.check: finding.outcome for finding in findings}


def test_one_wrong_bit_in_one_weight_is_seen():
    want = dequantise(ordinary_rows(Q4_K), Q4_K)
    got = want.copy()
    got.view(np.uint32)[3, 77] ^= 1
    (finding,) = dequant.exact_weights(got, want, WHERE)
    assert finding.outcome is FAILED
    assert "(3, 77)" in str(finding)


def test_a_zero_of_the_wrong_sign_is_seen():
    assert outcomes(dequant.exact_weights(np.array([-0.0]), np.array([0.0]), {})) == {"dequant.exact": FAILED}


def test_a_number_for_a_nan_is_seen():
    assert outcomes(dequant.exact_weights(np.array([0.0]), np.array([np.nan]), {})) == {"dequant.exact": FAILED}


def test_q4_k_read_as_q4_0_is_seen():
    """The pair has equal bytes a weight, so shapes and sizes are right: only values tell."""
    raw = ordinary_rows(Q4_K)
    assert outcomes(dequant.exact_weights(dequantise(raw, Q4_0), dequantise(raw, Q4_K), WHERE)) == {
        "dequant.exact": FAILED
    }


def test_hold_reports_a_small_counterexample():
    """A kernel that is wrong for one scale only is found, and the finding says where."""

    def negative_zero_lost(raw):
        right = dequantise(raw, Q8_0)
        return dequant.exact_weights(right + np.float32(0), right, {"type": "Q8_0"})

    (finding,) = hold(raw_rows(Q8_0), negative_zero_lost)
    assert finding.outcome is FAILED


def test_hold_passes_with_the_number_of_examples():
    (finding,) = hold(raw_rows(Q8_0), lambda raw: dequant.exact_weights(raw, raw, {"type": "Q8_0"}), examples=5)
    assert finding.outcome is PASSED
    assert "5 examples" in finding.got


@pytest.mark.parametrize("output", ["float16", "bfloat16", "float32"])
def test_a_kernel_that_rounds_to_its_output_passes(output):
    raw = ordinary_rows(Q4_K)
    want = dequantise(raw, Q4_K)
    got = rounded(want, output)
    assert outcomes(dequant.kernel_weights(got, want, np.abs(want), output, WHERE)) == {
        "dequant.kernel_weights": PASSED
    }


@pytest.mark.parametrize("output", ["float16", "bfloat16", "float32"])
def test_a_kernel_that_drops_the_minimum_is_seen(output):
    raw = ordinary_rows(Q4_K)
    want = dequantise(raw, Q4_K)
    without = raw.copy()
    without.reshape(-1, 144)[:, 2:4] = 0
    findings = dequant.kernel_weights(
        dequantise(without, Q4_K), want, np.abs(want).max(1, keepdims=True), output, WHERE
    )
    assert outcomes(findings) == {"dequant.kernel_weights": FAILED}


@pytest.mark.parametrize("output", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("quantised_inputs", [True, False])
class TestProduct:
    def test_a_product_with_the_rounding_it_claims_passes(self, output, quantised_inputs):
        weights, inputs, noise = self.arrange(output, quantised_inputs)
        got = rounded((quantised(inputs) if quantised_inputs else inputs) @ weights.T, output)
        findings = dequant.kernel_product(got, inputs.astype(float) @ weights.T.astype(float), noise, WHERE)
        assert set(outcomes(findings).values()) == {PASSED}

    def test_one_super_block_at_a_wrong_place_is_seen(self, output, quantised_inputs):
        weights, inputs, noise = self.arrange(output, quantised_inputs)
        moved = np.concatenate([weights[:, 256:512], weights[:, :256], weights[:, 512:]], axis=1)
        findings = dequant.kernel_product(
            inputs @ moved.T, inputs.astype(float) @ weights.T.astype(float), noise, WHERE
        )
        assert set(outcomes(findings).values()) == {FAILED}

    def test_one_row_not_written_is_seen(self, output, quantised_inputs):
        weights, inputs, noise = self.arrange(output, quantised_inputs)
        got = inputs @ weights.T
        got[-1, -1] = np.nan
        findings = dequant.kernel_product(got, inputs.astype(float) @ weights.T.astype(float), noise, WHERE)
        assert set(outcomes(findings).values()) == {FAILED}

    def arrange(self, output, quantised_inputs):
        weights = dequantise(ordinary_rows(Q4_K), Q4_K)
        inputs = np.random.default_rng(1).standard_normal((3, weights.shape[1])).astype(np.float32)
        return (
            weights,
            inputs,
            dequant.product_noise(weights, inputs, np.abs(weights), output, quantised_inputs=quantised_inputs),
        )


class TestTensorCores:
    """Float32 factors of which tensor cores read ten bits of fraction."""

    @pytest.fixture
    def product(self):
        weights = dequantise(ordinary_rows(Q4_K, rows=64), Q4_K)
        inputs = np.random.default_rng(1).standard_normal((8, weights.shape[1])).astype(np.float32)
        return weights, inputs, inputs.astype(float) @ weights.T.astype(float)

    def judged(self, got, product, *, tf32):
        weights, inputs, want = product
        noise = dequant.product_noise(weights, inputs, np.abs(weights), "float32", quantised_inputs=False, tf32=tf32)
        return set(outcomes(dequant.kernel_product(got, want, noise, WHERE)).values())

    def test_their_product_passes_where_that_is_known_and_fails_where_it_is_not(self, product):
        weights, inputs, _ = product
        got = (cut(inputs) @ cut(weights).T).astype(np.float32)
        assert self.judged(got, product, tf32=True) == {PASSED}
        assert self.judged(got, product, tf32=False) == {FAILED}

    def test_ten_times_their_error_is_seen(self, product):
        weights, inputs, want = product
        got = want + 10 * (cut(inputs) @ cut(weights).T - want)
        assert self.judged(got.astype(np.float32), product, tf32=True) == {FAILED}

    def test_a_super_block_at_a_wrong_place_is_seen(self, product):
        weights, inputs, _ = product
        moved = np.concatenate([weights[:, 256:512], weights[:, :256], weights[:, 512:]], axis=1)
        assert self.judged(inputs @ moved.T, product, tf32=True) == {FAILED}


def test_every_type_of_a_glm5_file_has_one_class():
    small = {
        "Q4_0",
        "Q4_1",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "MXFP4",
        "F16",
        "BF16",
        "F32",
    }
    index = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"}
    assert {qtype.name for qtype in QUANT_TYPES} == small | index
    assert all((kind.block_size, kind.type_size) == GGML_QUANT_SIZES[qtype] for qtype, kind in QUANT_TYPES.items())


def test_an_unknown_type_raises():
    """A kernel that returned uninitialised memory for one is a known fault elsewhere."""
    with pytest.raises(CheckpointError, match="cannot be dequantised"):
        dequantise(np.zeros((1, 54), np.uint8), GGMLQuantizationType.TQ1_0)


def test_half_a_block_raises():
    with pytest.raises(CheckpointError, match=r"1\.5 blocks of Q8_0"):
        dequantise(np.zeros((1, 51), np.uint8), Q8_0)


def rounded(values, output):
    if output == "float32":
        return values.astype(np.float32)
    bits = dequantise(np.ascontiguousarray(values, np.float32).view(np.uint8), GGMLQuantizationType.F32, out=output)
    qtype = GGMLQuantizationType.F16 if output == "float16" else GGMLQuantizationType.BF16
    return dequantise(bits.view(np.uint8), qtype)


def quantised(inputs):
    """Inputs as q8_1 holds them: eight bits a value, a half-precision step for every 32."""
    blocks = inputs.reshape(len(inputs), -1, 32)
    step = np.abs(blocks).max(axis=2, keepdims=True) / 127
    return (np.rint(blocks / step) * step.astype(np.float16)).reshape(inputs.shape).astype(np.float32)


def cut(values):
    """What tensor cores read of float32 values as TF32."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
