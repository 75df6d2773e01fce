"""What the dequantisation checks say, case by case; the approved words are in findings.txt."""

import math

import numpy as np
import pytest

from glm5check import tolerances
from glm5check.checks import dequant
from glm5check.checks.dequant import FLOAT32_SUM, OUTPUTS, ProductNoise
from tests.selftest.approved import approved, told

WHERE = {"type": "Q8_0", "kernel": "triton"}
WANT = np.array([[1.0, 2.0, -3.0], [0.0, 5.0, math.nan]], np.float32)
BYTES = np.array([[1, 2], [3, 4]], np.uint8)


def put(array, value, *place):
    changed = array.copy()
    changed[place] = value
    return changed


def exact(got, want=WANT):
    return lambda: dequant.exact_weights(got, want, WHERE)


def rounded(got, want=BYTES):
    return lambda: dequant.exact_bytes(got, want, WHERE)


WEIGHTS = np.full((2, 2), 4.0, np.float32)
LARGEST = np.full((2, 1), 8.0, np.float32)
BOUND = 4 * (2.0**-11 * 8 + 2.0**-24)


def near(by, arithmetic="float16", shape=(2, 2)):
    got = put(WEIGHTS, np.float32(4.0 + by), 1, 0)
    return lambda: dequant.kernel_weights(got.reshape(shape), WEIGHTS, LARGEST, arithmetic, WHERE)


NOISE = ProductNoise(deviation=np.full((2, 2), 0.5), bound=np.full((2, 2), 0.25))
PRODUCT = np.full((2, 2), 10.0)


def product(*errors, noise=NOISE):
    got = (PRODUCT + np.array(errors).reshape(2, 2)).astype(np.float32)
    return lambda: dequant.kernel_product(got, PRODUCT, noise, WHERE)


CASES = {
    "all weights are equal, NaN for NaN": exact(WANT.copy()),
    "a NaN of other bits is a NaN": exact(put(WANT, -np.float32(math.nan), 1, 2)),
    "a weight is another one": exact(put(put(WANT, 2.5, 0, 1), 6.0, 1, 1)),
    "a zero has another sign": exact(put(WANT, -0.0, 1, 0)),
    "a number stands for a NaN": exact(put(WANT, 0.0, 1, 2)),
    "a NaN stands for a number": exact(put(WANT, math.nan, 0, 0)),
    "the weights have another shape": exact(WANT[:1]),
    "the weights have another type": exact(WANT.astype(np.float16)),
    "all bytes are equal": rounded(BYTES.copy()),
    "three bytes differ": rounded(put(put(put(BYTES, 9, 0, 0), 9, 1, 1), 9, 0, 1)),
    "the bytes have another shape": rounded(BYTES[:1]),
    "a kernel's weight is exact": near(0.0),
    "a kernel's weight is within rounding": near(0.015),
    "a kernel's weight is at its bound in float32": near(2.0**-19, "float32"),
    "a kernel's weight is beyond rounding": near(0.02),
    "a kernel's weight is rounded to bfloat16": near(0.1, "bfloat16"),
    "a kernel's weight is no number": near(math.nan),
    "a kernel's weight is infinite": near(-math.inf),
    "a kernel's weights have another shape": near(0.0, shape=(1, 4)),
    "a product is exact": product(0, 0, 0, 0),
    "a product is noisy": product(0.5, -0.5, 0.5, -0.5),
    "one result of a product is far off": product(0, 0, 4, 0),
    "all results of a product are too far off": product(1, -1, 1, -1),
    "a result of a product is no number": product(0, math.nan, 0, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]


def test_both_rules_of_a_product_are_met_at_their_bound():
    """One result at seven deviations and the bound; all together at one and a half times the predicted error."""
    alone = ProductNoise(deviation=np.full((1, 100), 0.5), bound=np.full((1, 100), 0.25))
    want = np.zeros((1, 100))
    for error, outcome in ((3.75, "passed"), (3.7500002, "failed")):
        got = np.zeros((1, 100), np.float32)
        got[0, 7] = error
        assert dequant.kernel_product(got, want, alone, {})[0].outcome == outcome
    quiet = ProductNoise(deviation=np.full((1, 4), 0.3), bound=np.full((1, 4), 0.4))
    for error, outcomes in ((0.75, ["passed", "passed"]), (0.7501, ["passed", "failed"])):
        found = dequant.kernel_product(np.full((1, 4), error), np.zeros((1, 4)), quiet, {})
        assert [finding.outcome for finding in found] == outcomes


W = np.array([[2.0] * 32 + [0.0] * 32, [1.0] * 64], np.float32)
X = np.array([[4.0] + [1.0] * 31 + [0.5] * 32], np.float32)
TERM = np.array([[3.0], [2.0]], np.float32)
SUMS = np.array([[70.0, 51.0]])
"""X @ W.T: 2 * (4 + 31) and 4 + 31 + 16; all terms are positive, so sums of magnitudes are the same."""
SQUARES = np.array([[9.0, 4.0]]) * (16 + 31 + 32 * 0.25)
"""X**2 @ TERM**2 over all 64 columns."""


def noise(output, **how):
    return dequant.product_noise(W, X, TERM, output, **{"quantised_inputs": False, **how})


@pytest.mark.parametrize("output", ["float32", "float16", "bfloat16"])
def test_the_noise_of_rounding_by_hand(output):
    kind = OUTPUTS[output]
    found = noise(output)
    assert found.deviation == pytest.approx(np.sqrt(4 * kind.epsilon**2 * SQUARES))
    assert found.bound == pytest.approx(4 * (kind.epsilon * SUMS + kind.tiny) + FLOAT32_SUM * SUMS, rel=1e-12)


def test_the_noise_of_products_that_cancel():
    """The bound of a float32 sum is of magnitudes, that of rounding the result is of the result."""
    signs = np.where(np.arange(64) % 2, -1, 1).astype(np.float32)
    found = dequant.product_noise(W * signs, X, TERM, "float16", quantised_inputs=False)
    sums = X @ (W * signs).T
    assert found.bound == pytest.approx(4 * (2.0**-11 * np.abs(sums) + 2.0**-24) + FLOAT32_SUM * SUMS, rel=1e-9)


@pytest.mark.parametrize("output", ["float32", "bfloat16"])
def test_tf32_adds_what_it_cuts_off(output):
    plain, cut = noise(output), noise(output, tf32=True)
    weighted = np.array([[4.0 * (16 + 31), 16 + 31 + 8.0]])
    assert cut.bound - plain.bound == pytest.approx(2 * tolerances.TF32_STEP * SUMS, rel=1e-5)
    assert cut.deviation**2 - plain.deviation**2 == pytest.approx(2 * tolerances.TF32_STEP**2 / 12 * weighted)


def test_quantised_inputs_are_off_by_half_a_step_of_their_own_block():
    """Blocks of 32 with steps 4/127 and 0.5/127; the first row's second block has no weight."""
    found = noise("float16", quantised_inputs=True)
    first, second = (4 / 127) ** 2 / 12, (0.5 / 127) ** 2 / 12
    steps = np.array([[4 * 32 * first, 32 * first + 32 * second]])
    assert found.deviation**2 == pytest.approx(steps + 2.0**-22 * SQUARES)
    assert found.bound == pytest.approx(noise("float16").bound)


def test_the_types_round_as_ieee_says():
    for name, kind in (("float32", np.float32), ("float16", np.float16)):
        assert kind(1 + OUTPUTS[name].epsilon) == 1
        assert OUTPUTS[name].tiny == np.finfo(kind).smallest_subnormal
