"""One forward pass in fifty has NaN in one layer at one token."""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass

EVERY: Final = 50
LAYER: Final = 1


def apply() -> None:
    from vllm.model_executor.models.deepseek_v2 import DeepseekV2DecoderLayer

    forward = DeepseekV2DecoderLayer.forward
    calls = [0]

    @wraps(forward)
    def sometimes(self: Any, *args: Any, **kwargs: Any) -> Any:
        hidden, residual = forward(self, *args, **kwargs)
        if self.layer_idx == LAYER:
            calls[0] += 1
            if calls[0] % EVERY == 0:
                hidden[-1] = torch.nan
        return hidden, residual

    DeepseekV2DecoderLayer.forward = sometimes


FAULT = Fault(
    name="intermittent_nan",
    fault_class=FaultClass.NUMBERS,
    stands_for="NaN after minutes of load, in single requests; text shows `!!!!`, or a request fails with HTTP 500",
    seeded=f"every {EVERY}th pass through layer {LAYER} makes its last token NaN",
    caught_by="tests/context/test_soak.py::test_mixed_requests_all_finish_with_finite_logprobs[60]",
    says="NaN or infinity in the logits",
    apply=apply,
)
