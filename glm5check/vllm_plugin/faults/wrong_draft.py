"""Speculative decoding accepts a wrong draft now and then."""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

import torch

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass

EVERY: Final = 2
"""Verifications of which one accepts all drafts. Real reports were rarer; a short test must meet wrong drafts."""


def apply() -> None:
    from vllm.v1.sample import rejection_sampler

    rejection_sample = rejection_sampler.rejection_sample
    calls = [0]

    @wraps(rejection_sample)
    def sometimes_accept(
        drafts: torch.Tensor, counts: list[int], longest: int, ends: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        accepted: torch.Tensor = rejection_sample(drafts, counts, longest, ends, *args, **kwargs)
        calls[0] += 1
        if calls[0] % EVERY == 0 and counts[0]:
            accepted[0, : counts[0]] = drafts[: counts[0]].to(accepted.dtype)
        return accepted

    rejection_sampler.rejection_sample = sometimes_accept


FAULT = Fault(
    name="wrong_draft",
    fault_class=FaultClass.SPECULATION,
    stands_for="speculative decoding that changes greedy text: not lossless",
    seeded=f"one verification in {EVERY} accepts the first sequence's drafts whatever the model says",
    caught_by="tests/speculative/test_lossless.py::test_speculation_does_not_change_greedy_text",
    says="a draft was accepted that the model would not have chosen",
    apply=apply,
)
