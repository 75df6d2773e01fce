"""The installed kernels compute with the file's weights: dequantisation, matrix products, experts.

Right means: within the rounding of the type that they work in, and of the inputs, which CUDA kernels quantise to eight
bits. The bounds are derived in `checks.dequant`; nothing is fitted to what a kernel happens to give.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fixtures.kernels import BACKENDS, installed_kernels
from fixtures.strategies import ordinary_rows
from glm5check.checkpoint.dequant import QUANT_TYPES, dequantise, quant_type
from glm5check.checks import dequant

KERNEL_TYPES = sorted((q for q, kind in QUANT_TYPES.items() if kind.block_size > 1 and q.name != "MXFP4"), key=str)
OUTPUTS = ("float32", "float16", "bfloat16")
TOKENS = (1, 2, 3, 6, 7, 8, 9, 16, 17, 64)
"""Both sides of every batch size at which the plugin changes kernels: 2 and 6, for I-quants 8 and 16."""
EXPERTS, TOP_K = 8, 2


@pytest.fixture(params=BACKENDS)
def kernels(request, monkeypatch):
    return installed_kernels(request.param, monkeypatch)


@pytest.fixture(params=KERNEL_TYPES, ids=lambda qtype: qtype.name)
def qtype(request):
    return request.param


def test_dequantised_weights(kernels, qtype, verdict):
    raw = ordinary_rows(qtype, rows=33)
    want = dequantise(raw, qtype)
    findings = []
    for output in OUTPUTS:
        where = {"type": qtype.name, "kernels": kernels.name, "output": output}
        got = kernels.weights(raw, qtype, output)
        findings += dequant.kernel_weights(got, want, largest_terms(want), kernels.arithmetic(output), where)
    verdict(findings)


@pytest.mark.parametrize(("rows", "batches"), [(64, TOKENS), (5184, TOKENS[1:7])])
def test_matrix_product(kernels, qtype, rows, batches, verdict):
    """Few and many rows, as the plugin switches at other batch sizes above 5,120 of them."""
    raw = ordinary_rows(qtype, rows=rows, blocks=512 // quant_type(qtype).block_size)
    weights = dequantise(raw, qtype)
    findings = []
    for output, tokens in product(OUTPUTS, batches):
        inputs = rounded_inputs(tokens, 512, output)
        where = {"type": qtype.name, "kernels": kernels.name, "output": output, "rows": f"{tokens} x {rows}"}
        findings += judged(kernels.product(raw, inputs, qtype, output), inputs, weights, kernels, output, where)
    verdict(findings)


@pytest.mark.parametrize(
    ("kernel", "batches"), [("expert_product_vec", (1, 3, 64)), ("expert_product", (65, 200))], ids=["vec", "sorted"]
)
def test_experts(kernels, qtype, kernel, batches, verdict):
    """Both kernels: the plugin changes to the sorted one above 64 tokens. One expert is chosen by no token."""
    raw = ordinary_rows(qtype, rows=EXPERTS * 32, blocks=512 // quant_type(qtype).block_size).reshape(EXPERTS, 32, -1)
    weights = dequantise(raw, qtype)
    findings = []
    for output, tokens in product(OUTPUTS, batches):
        inputs = rounded_inputs(tokens, 512, output)
        chosen = np.random.default_rng(2).integers(0, EXPERTS - 1, (tokens, TOP_K), dtype=np.int32)
        got = getattr(kernels, kernel)(raw, inputs, chosen, qtype, output)
        for expert in np.unique(chosen):
            pairs = np.flatnonzero(chosen == expert)
            where = {"type": qtype.name, "kernels": kernels.name, "output": output, "expert": str(expert)}
            findings += judged(got[pairs], inputs[pairs // TOP_K], weights[expert], kernels, output, where)
    verdict(findings)


def judged(got, inputs, weights, kernels, output, where):
    noise = dequant.product_noise(
        weights,
        inputs,
        largest_terms(weights),
        output,
        quantised_inputs=kernels.quantised_inputs,
        tf32=kernels.tf32(output),
    )
    return dequant.kernel_product(got, inputs.astype(np.float64) @ weights.T.astype(np.float64), noise, where)


def largest_terms(weights):
    """Bound of the terms that a weight is the difference of: twice the largest weight of its 32."""
    runs = np.abs(weights).reshape(*weights.shape[:-1], -1, 32).max(axis=-1, keepdims=True)
    return np.broadcast_to(2 * runs, (*runs.shape[:-1], 32)).reshape(weights.shape)


def rounded_inputs(tokens, columns, output):
    """Random activations that the output type holds exactly."""
    inputs = np.random.default_rng(tokens).standard_normal((tokens, columns)).astype(np.float32)
    if output == "float16":
        return inputs.astype(np.float16).astype(np.float32)
    mask = np.uint32(0xFFFF0000 if output == "bfloat16" else 0xFFFFFFFF)
    return (inputs.view(np.uint32) & mask).view(np.float32)
