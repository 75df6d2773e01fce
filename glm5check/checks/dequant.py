"""Do kernels for quantised weights compute what the reference does? Arrays in, findings out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glm5check import tolerances
from glm5check.records import Finding, Outcome

__all__ = [
    "OUTPUTS",
    "ProductNoise",
    "exact_bytes",
    "exact_weights",
    "kernel_product",
    "kernel_weights",
    "product_noise",
]


@dataclass(frozen=True, slots=True)
class Output:
    """A floating type that kernels write: the largest relative rounding error and the smallest denormal."""

    epsilon: float
    tiny: float


OUTPUTS: Final = {
    "float32": Output(2.0**-24, 2.0**-149),
    "float16": Output(2.0**-11, 2.0**-24),
    "bfloat16": Output(2.0**-8, 2.0**-133),
}

FLOAT32_SUM: Final = 2.0**-22
"""Relative error of a float32 sum of some hundred products, against the sum of their magnitudes."""


def exact_weights(got: NDArray[Any], want: NDArray[Any], where: Mapping[str, str]) -> list[Finding]:
    """Two float arrays are equal bit for bit; a NaN equals any NaN, a zero only a zero of its sign."""
    rule = "every bit equal to gguf-py's reference, NaN for NaN"
    if got.shape != want.shape or got.dtype != want.dtype:
        shapes = f"{got.dtype.name} {got.shape} against {want.dtype.name} {want.shape}"
        return [Finding(check="dequant.exact", outcome=Outcome.FAILED, got=shapes, want=rule, where=where)]
    bits = np.dtype(f"u{got.dtype.itemsize}")
    differs = (got.view(bits) != want.view(bits)) & ~(np.isnan(got) & np.isnan(want))
    if not differs.any():
        return [Finding(check="dequant.exact", outcome=Outcome.PASSED, got=f"{got.size} equal", want=rule, where=where)]
    first = tuple(int(i) for i in np.argwhere(differs)[0])
    return [
        Finding(
            check="dequant.exact",
            outcome=Outcome.FAILED,
            got=f"{int(differs.sum())} of {got.size} weights differ, the first {got[first]!r} for {want[first]!r}",
            want=rule,
            where={**where, "first": str(first)},
        )
    ]


def exact_bytes(got: NDArray[np.uint8], want: NDArray[np.uint8], where: Mapping[str, str]) -> list[Finding]:
    """Two byte arrays are equal: 16-bit output of ours against rounding by another library."""
    same = got.shape == want.shape and bool((got == want).all())
    outcome = Outcome.PASSED if same else Outcome.FAILED
    differ = "equal" if same else f"{int((got != want).sum()) if got.shape == want.shape else 'shapes'} differ"
    return [Finding(check="dequant.rounding", outcome=outcome, got=differ, want="equal bytes", where=where)]


def kernel_weights(
    got: NDArray[np.float32],
    want: NDArray[np.float32],
    largest: NDArray[np.float32],
    arithmetic: str,
    where: Mapping[str, str],
) -> list[Finding]:
    """Weights from an installed kernel that computes in `arithmetic` lie within its rounding of `want`.

    `largest` [..., 1 or columns] bounds the terms that a weight is the sum of: kernels round scale, product and
    difference each, relative to those and not to the result.
    """
    kind = OUTPUTS[arithmetic]
    bound = tolerances.KERNEL_ROUNDINGS * (kind.epsilon * largest + kind.tiny)
    return _within("dequant.kernel_weights", got, want, np.broadcast_to(bound, want.shape), where)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductNoise:
    """What error a product may have: `deviation` (standard) of random rounding, `bound` of the systematic kind."""

    deviation: NDArray[np.float64]
    bound: NDArray[np.float64]


def product_noise(
    weights: NDArray[np.float32],
    inputs: NDArray[np.float32],
    largest: NDArray[np.float32],
    output: str,
    *,
    quantised_inputs: bool,
    tf32: bool = False,
) -> ProductNoise:
    """The noise of `inputs @ weights.T` [tokens, rows] for weights [rows, columns] and inputs [tokens, columns].

    Either a kernel quantises inputs to q8_1: blocks of 32 with step max/127, so an error uniform within half a step in
    each, and a scale and a sum stored as halves. Or it rounds weights to the output type, term by term (`largest`, as
    in `kernel_weights`), and with `tf32` cuts both factors: results shrink by up to two steps, as all factors do, and
    scatter by what is cut off, uniform within a step. Then the products are summed in float32, and the result is
    rounded to the output type.
    Inputs must be random and independent: then rounding errors of one scale, which many weights share, average out.
    """
    kind = OUTPUTS[output]
    w, x, term = (array.astype(np.float64) for array in (weights, inputs, np.broadcast_to(largest, weights.shape)))
    total = np.abs(x) @ np.abs(w).T
    bound = tolerances.KERNEL_ROUNDINGS * (kind.epsilon * np.abs(x @ w.T) + kind.tiny) + FLOAT32_SUM * total
    if not quantised_inputs:
        variance = tolerances.KERNEL_ROUNDINGS * kind.epsilon**2 * (x**2 @ (term**2).T)
        if tf32:
            variance += 2 * tolerances.TF32_STEP**2 / 12 * (x**2 @ (w**2).T)
            bound += 2 * tolerances.TF32_STEP * np.abs(x @ w.T)
        return ProductNoise(deviation=np.sqrt(variance), bound=bound)
    step = np.abs(x.reshape(len(x), -1, 32)).max(axis=2).repeat(32, axis=1) / 127
    variance = (step**2 / 12) @ (w**2).T + OUTPUTS["float16"].epsilon ** 2 * (x**2 @ (term**2).T)
    return ProductNoise(deviation=np.sqrt(variance), bound=bound)


def kernel_product(
    got: NDArray[np.float32], want: NDArray[np.float64], noise: ProductNoise, where: Mapping[str, str]
) -> list[Finding]:
    """A product from an installed kernel lies within its noise of `want`, one by one and on the whole."""
    limit = tolerances.KERNEL_SIGMAS * noise.deviation + noise.bound
    findings = _within("dequant.kernel_product", got, want, limit, where)
    error = float(np.sqrt(np.mean((got - want) ** 2)))
    allowed = tolerances.KERNEL_RMS_RATIO * float(np.sqrt(np.mean(noise.deviation**2 + noise.bound**2)))
    right = error <= allowed  # false for NaN
    findings.append(
        Finding(
            check="dequant.kernel_rms",
            outcome=Outcome.PASSED if right else Outcome.FAILED,
            got=f"root-mean-square error {error:.3g}",
            want=f"at most {allowed:.3g}: the kernel's own rounding predicts it",
            where=where,
            value=error,
            bound=allowed,
        )
    )
    return findings


def _within(
    check: str, got: NDArray[Any], want: NDArray[Any], bound: NDArray[Any], where: Mapping[str, str]
) -> list[Finding]:
    if got.shape != want.shape:
        shapes = f"shape {got.shape}"
        return [Finding(check=check, outcome=Outcome.FAILED, got=shapes, want=f"shape {want.shape}", where=where)]
    ratio = np.abs(got.astype(np.float64) - want) / bound
    ratio[~np.isfinite(got)] = np.inf
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    value = float(ratio[worst])
    return [
        Finding(
            check=check,
            outcome=Outcome.PASSED if value <= 1 else Outcome.FAILED,
            got=f"{got[worst]:.6g} at {worst}, {value:.2g} times the bound ({int((ratio > 1).sum())} beyond it)",
            want=f"{want[worst]:.6g} within {bound[worst]:.3g}",
            where=where,
            value=value,
            bound=1.0,
            unit="bounds",
        )
    ]
