"""The tensors survive merging and tensor parallelism at the chosen number of ranks."""

from __future__ import annotations

from glm5check.checks import checkpoint as checks


def test_types_have_kernels(checkpoint, verdict):
    verdict(checks.types_served(checkpoint))


def test_merged_parameters_hold_types_that_their_loader_keeps_apart(checkpoint, verdict):
    verdict(checks.merged_types(checkpoint))


def test_router_bias_is_float32(checkpoint, verdict):
    verdict(checks.router_bias(checkpoint))


def test_ranks_share_every_axis_evenly(checkpoint, settings, verdict):
    verdict(checks.even_split(checkpoint, settings.ranks))


def test_row_parallel_slices_end_at_block_borders(checkpoint, settings, verdict):
    verdict(checks.slices_at_blocks(checkpoint, settings.ranks))
