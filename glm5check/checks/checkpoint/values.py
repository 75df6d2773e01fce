"""What the bytes hold: scales, dead tensors, magnitudes."""

from __future__ import annotations

from typing import Final

from glm5check.checkpoint.audit import Checkpoint
from glm5check.checks.checkpoint.findings import failed, passed, unknown
from glm5check.records import Finding

FLOAT16_LARGEST: Final = 65504.0
"""The largest number of float16: a fact of the format, not a bound to tune."""


def finite_scales(checkpoint: Checkpoint) -> list[Finding]:
    """No block has an infinite or NaN scale: one such weight makes every answer of the model NaN."""
    want = "no infinite or NaN scale or weight"
    findings = [
        failed("scales", f"{c.non_finite} of {c.blocks} blocks", want, {"tensor": c.tensor.name})
        for c in checkpoint.contents
        if c.non_finite
    ]
    return findings or passed("scales", f"{len(checkpoint.contents)} tensors", want)


def no_dead_tensors(checkpoint: Checkpoint) -> list[Finding]:
    """No matrix or norm is all zero, as a download that was allocated but not filled is. Biases may be."""
    want = "at least one weight that is not zero"
    findings = [
        failed(
            "dead", "every weight is zero", want, {"tensor": c.tensor.name}, cause="the file was not written to its end"
        )
        for c in checkpoint.contents
        if c.all_zero and not c.tensor.name.endswith(".bias")
    ]
    return findings or passed("dead", f"{len(checkpoint.contents)} tensors", want)


def float16_range(checkpoint: Checkpoint) -> list[Finding]:
    """Weights fit float16, in which kernels dequantise. A model converted to F16 has infinities where they did not."""
    want = f"magnitudes of at most {FLOAT16_LARGEST:g}"
    known = [(c.tensor, c.largest) for c in checkpoint.contents if c.largest is not None]
    if not known:
        return unknown("float16", "weights were not read", want)
    findings = [
        failed("float16", f"{largest:g}", want, {"tensor": tensor.name, "type": tensor.qtype.name})
        for tensor, largest in known
        if largest > FLOAT16_LARGEST
    ]
    return findings or passed("float16", f"{max(largest for _, largest in known):g} at most", want)
