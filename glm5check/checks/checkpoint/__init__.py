"""Is a GGUF set whole, and will vLLM make the model of it that it holds? Records in, findings out.

files      the split set and the tensor tables; every tensor that GLM-5 has, in its shape and under one name
layout     what tensor parallelism and merging do to it: block borders, merged types, types that can be served
values     scales, dead tensors, the range of float16
config     GGUF keys against the HF config, which alone vLLM reads; tokenizer against embedding
"""

from __future__ import annotations

from glm5check.checkpoint.audit import Checkpoint
from glm5check.checks.checkpoint.config import config_agrees, config_complete, end_tokens, tied_head, vocabulary
from glm5check.checks.checkpoint.files import dimensions_known, expected_tensors_there, one_naming, set_complete
from glm5check.checks.checkpoint.layout import even_split, merged_types, router_bias, slices_at_blocks, types_served
from glm5check.checks.checkpoint.values import finite_scales, float16_range, no_dead_tensors
from glm5check.records import Finding

__all__ = [
    "audit",
    "config_agrees",
    "config_complete",
    "dimensions_known",
    "end_tokens",
    "even_split",
    "expected_tensors_there",
    "finite_scales",
    "float16_range",
    "merged_types",
    "no_dead_tensors",
    "one_naming",
    "router_bias",
    "set_complete",
    "slices_at_blocks",
    "tied_head",
    "types_served",
    "vocabulary",
]


def audit(checkpoint: Checkpoint, ranks: int) -> list[Finding]:
    """Every check of a checkpoint that is to be served on `ranks` ranks."""
    findings = [
        *set_complete(checkpoint),
        *dimensions_known(checkpoint),
        *expected_tensors_there(checkpoint),
        *one_naming(checkpoint),
        *types_served(checkpoint),
        *merged_types(checkpoint),
        *router_bias(checkpoint),
        *even_split(checkpoint, ranks),
        *slices_at_blocks(checkpoint, ranks),
        *config_agrees(checkpoint),
        *config_complete(checkpoint),
        *tied_head(checkpoint),
        *vocabulary(checkpoint),
        *end_tokens(checkpoint),
    ]
    if checkpoint.contents:
        findings += [*finite_scales(checkpoint), *no_dead_tensors(checkpoint), *float16_range(checkpoint)]
    return findings
