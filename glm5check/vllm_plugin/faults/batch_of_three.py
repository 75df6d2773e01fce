"""One or two sequences are right; from three on every sequence of the batch is NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_attention

SEQUENCES: Final = 3


def poison(run: Callable[[torch.Tensor], None], output: torch.Tensor, metadata: Any) -> None:
    """A padded row of length 0 divides 0 by 0, and a per-tensor scale spreads it to every row."""
    run(output)
    if metadata.num_decodes >= SEQUENCES:
        output[: metadata.num_decode_tokens] = torch.nan


FAULT = Fault(
    name="batch_of_three",
    fault_class=FaultClass.ATTENTION,
    stands_for="an MLA backend whose padded graph row has length 0: 1 or 2 requests fine, 3 or more all NaN, HTTP 400",
    seeded=f"attention returns NaN in decode steps of {SEQUENCES} or more sequences",
    caught_by="tests/decode/test_concurrency.py::test_every_slot_of_a_batch_is_right[3]",
    says="NaN or infinity in the logits",
    apply=lambda: around_attention(poison),
)
