"""A second opinion on the reference, and the speed to reach: llama.cpp's C, out of the xllamacpp wheel."""

from __future__ import annotations

import ctypes
from pathlib import Path

import gguf.quants
import numpy as np
import pytest

from fixtures.stopwatch import best_of
from fixtures.strategies import ordinary_rows
from glm5check.checkpoint.dequant import QUANT_TYPES, dequantise, quant_type
from glm5check.checks import dequant
from glm5check.records import Outcome

xllamacpp = pytest.importorskip("xllamacpp")
QUANTISED = sorted((qtype for qtype, kind in QUANT_TYPES.items() if kind.block_size > 1), key=lambda qtype: qtype.name)
SLOWEST = 0.6
"""Of the C's speed. The kernels reach 0.9 to 30 times it; half of it would mean one that is no longer vectorised."""


@pytest.fixture(scope="module")
def c_library():
    (file,) = Path(xllamacpp.__file__).parent.glob("xllamacpp*.so")
    return ctypes.CDLL(str(file))


def c_dequantise(library, raw, qtype):
    function = getattr(library, "dequantize_row_" + qtype.name.lower().replace("_k", "_K"))
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
    kind = quant_type(qtype)
    out = np.empty((len(raw), raw.shape[1] // kind.type_size * kind.block_size), np.float32)
    function(raw.ctypes.data, out.ctypes.data, out.size)
    return out


@pytest.mark.parametrize("qtype", QUANTISED, ids=lambda qtype: qtype.name)
def test_weights_equal_llama_cpps(qtype, c_library):
    """Within the rounding of float32: a C compiler may fuse the product and the difference of a K-quant."""
    raw = ordinary_rows(qtype, rows=64)
    got, want = dequantise(raw, qtype), c_dequantise(c_library, raw, qtype)
    largest = np.abs(want).max(axis=1, keepdims=True)
    (finding,) = dequant.kernel_weights(got, want, largest, "float32", {"type": qtype.name})
    assert finding.outcome is Outcome.PASSED, str(finding)


@pytest.mark.perf
@pytest.mark.parametrize("qtype", QUANTISED, ids=lambda qtype: qtype.name)
def test_speed_is_that_of_llama_cpps_c(qtype, c_library, capsys):
    """MB/s of quantised data on one thread, into memory that is in use already, all three in the same run."""
    kind = quant_type(qtype)
    raw = ordinary_rows(qtype, rows=64, blocks=(1 << 21) // (64 * kind.type_size))
    blocks = raw.reshape(-1, kind.type_size)
    out = np.empty((len(blocks), kind.block_size), np.float32)
    function = getattr(c_library, "dequantize_row_" + qtype.name.lower().replace("_k", "_K"))
    arguments = ctypes.c_void_p(raw.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(out.size)
    # One call more than is needed, so that the first, which compiles and fills caches, may be a slow one.
    seconds = best_of(8, lambda: kind.dequantise_blocks(blocks, out), lambda: function(*arguments))
    seconds += best_of(2, lambda: gguf.quants.dequantize(raw, qtype))
    ours, c, python = (raw.nbytes / one / 1e6 for one in seconds)
    with capsys.disabled():
        print(f"\n{qtype.name:8} {ours:6.0f} MB/s: {ours / python:.1f} x gguf-py, {ours / c:.2f} x llama.cpp", end=" ")
    assert ours > SLOWEST * c
