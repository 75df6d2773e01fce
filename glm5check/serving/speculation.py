"""Counters of speculative decoding in the text of /metrics."""

from __future__ import annotations

from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from glm5check.records import Acceptance

DRAFTS: Final = "vllm:spec_decode_num_drafts_total"
BY_POSITION: Final = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def read_acceptance(metrics: str) -> Acceptance:
    """Drafts and acceptances by position since the server started, summed over its engines; zeros where it has none."""
    drafts = 0.0
    accepted: dict[int, float] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == DRAFTS:
                drafts += sample.value
            elif sample.name == BY_POSITION:
                position = int(sample.labels["position"])
                accepted[position] = accepted.get(position, 0.0) + sample.value
    return Acceptance(drafts=drafts, accepted=tuple(accepted.get(i, 0.0) for i in range(max(accepted, default=-1) + 1)))
