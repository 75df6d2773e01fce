"""The attention backend writes its result into another tensor than the one that the layer returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_attention


def write_elsewhere(run: Callable[[torch.Tensor], None], output: torch.Tensor, metadata: Any) -> None:
    """Prefill stays right, as in the real case, whose fault was in the decode kernel alone."""
    if metadata.num_decodes and not metadata.num_prefills:
        run(torch.empty_like(output))
    else:
        run(output)


FAULT = Fault(
    name="phantom_tensor",
    fault_class=FaultClass.ATTENTION,
    stands_for="garbage because the Triton MLA backend wrote into another tensor than the one it returned",
    seeded="attention of decode steps is computed into a buffer that is thrown away",
    caught_by="tests/decode/test_whitebox.py::test_attention_writes_every_row_it_returns",
    says="leaves rows of its output buffer as they were",
    apply=lambda: around_attention(write_elsewhere),
)
