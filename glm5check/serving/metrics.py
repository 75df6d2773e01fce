"""The server's own counters, read from the text of `/metrics`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from glm5check.errors import ServerError

GENERATED: Final = "vllm:generation_tokens_total"
PROMPTED: Final = "vllm:prompt_tokens_total"
SUCCEEDED: Final = "vllm:request_success_total"
STARTED: Final = "process_start_time_seconds"
DRAFTED: Final = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED: Final = "vllm:spec_decode_num_accepted_tokens_total"
DRAFTS: Final = "vllm:spec_decode_num_drafts_total"


@dataclass(frozen=True, slots=True)
class Counters:
    """Samples by name, summed over their labels (engines, finish reasons)."""

    values: Mapping[str, float]

    def since(self, earlier: Counters, name: str) -> float | None:
        """Growth of one counter; None where the server does not have it."""
        if name not in self.values:
            return None
        return self.values[name] - earlier.values.get(name, 0.0)


def parse_metrics(text: str) -> Counters:
    """Raises ServerError where `text` is not in Prometheus' text format."""
    sums: defaultdict[str, float] = defaultdict(float)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] += sample.value
    except ValueError as error:
        raise ServerError(
            f"the answer is not in Prometheus' text format: {error}", where="/metrics", do="is this a vLLM server?"
        ) from None
    return Counters(dict(sums))
