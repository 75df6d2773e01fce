"""Our dequantisation, on which everything else in this suite rests, equals gguf-py's numpy reference."""

from __future__ import annotations

import gguf.quants
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType

from fixtures.strategies import hold, raw_rows
from glm5check.checkpoint.dequant import QUANT_TYPES, dequantise
from glm5check.checks import dequant

TYPES = sorted(QUANT_TYPES, key=lambda qtype: qtype.name)


@pytest.mark.parametrize("qtype", TYPES, ids=lambda qtype: qtype.name)
def test_weights_equal_gguf_py_bit_for_bit(qtype, verdict):
    """Random bytes, special scales and codes, odd numbers of rows, slices of rows.

    Cannot see an error that gguf-py itself makes: the comparison with llama.cpp's C in `tests/selftest` does.
    """
    verdict(
        hold(
            raw_rows(qtype),
            lambda raw: dequant.exact_weights(dequantise(raw, qtype), reference(raw, qtype), {"type": qtype.name}),
        )
    )


@pytest.mark.parametrize("output", ["float16", "bfloat16"])
@pytest.mark.parametrize("qtype", TYPES, ids=lambda qtype: qtype.name)
def test_16_bit_weights_are_the_reference_rounded(qtype, output, verdict):
    """Rounding is torch's, so that kernels which write the serving type can be compared without another error."""
    verdict(hold(raw_rows(qtype), lambda raw: dequant.exact_bytes(*_rounded(raw, qtype, output), {"type": qtype.name})))


def reference(raw: np.ndarray, qtype: GGMLQuantizationType) -> np.ndarray:
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(np.ascontiguousarray(raw), qtype)


def _rounded(raw: np.ndarray, qtype: GGMLQuantizationType, output: str) -> tuple[np.ndarray, np.ndarray]:
    """Bits of ours and of torch's rounding, NaNs made one."""
    want = torch.from_numpy(reference(raw, qtype).copy()).to(getattr(torch, output))
    got = torch.from_numpy(dequantise(raw, qtype, out=output)).view(want.dtype)
    canonical = torch.tensor(0.0).log().mul(0).to(want.dtype)  # a NaN
    return tuple(torch.where(x.isnan(), canonical, x).view(torch.uint8).numpy() for x in (got, want))
