"""Faults that are seeded on purpose (`--glm5-faults NAME`), to see the suite catch them.

One small module each. The server says in its log that faults are on, and reports say so too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from glm5check.errors import OptionError
from glm5check.vllm_plugin.faults import (
    attention_scale,
    batch_of_three,
    bias_in_weights,
    bias_rounded,
    dead_worker,
    expert_type,
    gate_up_exchanged,
    indexer_rotary,
    intermittent_nan,
    kv_b_untransposed,
    load_order,
    null_block,
    one_end_id,
    permuted_heads,
    phantom_tensor,
    rank_ignored,
    rope_base,
    routed_scale_missing,
    routed_scale_twice,
    router_bias_lost,
    router_zero_division,
    slow_decode,
    softmax_gating,
    stale_positions,
    template_missing,
    template_twice,
    tied_head,
    unwritten_rows,
    wrong_draft,
    zeroed_prefix,
)
from glm5check.vllm_plugin.faults.fault import Fault

ALL: Final[tuple[Fault, ...]] = (
    attention_scale.FAULT,
    batch_of_three.FAULT,
    bias_in_weights.FAULT,
    bias_rounded.FAULT,
    dead_worker.FAULT,
    expert_type.FAULT,
    gate_up_exchanged.FAULT,
    indexer_rotary.FAULT,
    intermittent_nan.FAULT,
    kv_b_untransposed.FAULT,
    load_order.FAULT,
    null_block.FAULT,
    one_end_id.FAULT,
    permuted_heads.FAULT,
    phantom_tensor.FAULT,
    rank_ignored.FAULT,
    rope_base.FAULT,
    routed_scale_missing.FAULT,
    routed_scale_twice.FAULT,
    router_bias_lost.FAULT,
    router_zero_division.FAULT,
    slow_decode.FAULT,
    softmax_gating.FAULT,
    stale_positions.FAULT,
    template_missing.FAULT,
    template_twice.FAULT,
    tied_head.FAULT,
    unwritten_rows.FAULT,
    wrong_draft.FAULT,
    zeroed_prefix.FAULT,
)


def names() -> tuple[str, ...]:
    """The names that `apply` knows."""
    return tuple(fault.name for fault in ALL)


def apply(wanted: Sequence[str]) -> None:
    """Seed the faults of these names into this process. Raises OptionError listing the right names."""
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        raise OptionError(
            f"no fault is called {', '.join(unknown)}",
            where="GLM5CHECK_FAULTS",
            do=f"use some of {', '.join(names())}",
        )
    for fault in ALL:
        if fault.name in wanted:
            fault.apply()
