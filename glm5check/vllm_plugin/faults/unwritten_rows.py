"""The last row of a decode batch is not written by the attention kernel and keeps what its memory held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_attention


def leave_last(run: Callable[[torch.Tensor], None], output: torch.Tensor, metadata: Any) -> None:
    """Only decode steps: prefill is another kernel."""
    before = output.clone()
    run(output)
    if metadata.num_decodes:
        output[metadata.num_decode_tokens - 1] = before[metadata.num_decode_tokens - 1]


FAULT = Fault(
    name="unwritten_rows",
    fault_class=FaultClass.ATTENTION,
    stands_for="output rows that no kernel writes and that keep stale data: intermittent NaN in production",
    seeded="the last row of each decode batch is left as it was in the output buffer",
    caught_by="tests/decode/test_whitebox.py::test_attention_writes_every_row_it_returns",
    says="leaves rows of its output buffer as they were",
    apply=lambda: around_attention(leave_last),
)
