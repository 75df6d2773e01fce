"""The installed loaders give every rank its bytes: any load order, equal and mixed types, 1 to 16 ranks.

Each example builds vLLM's own layer for every rank, loads random tensors through the plugin's parameters, and compares
bytes and types with the reference partition and the output with that of the parts. Nothing is distributed: what this
cannot see is a server whose processes disagree about their ranks; `test_live_digests.py` can.
"""

from __future__ import annotations

import pytest

from fixtures.loader_cases import (
    expert_cases,
    judge_experts,
    judge_linear,
    judge_vocabulary,
    linear_cases,
    vocabulary_cases,
)
from fixtures.strategies import hold
from glm5check.checks import sharding
from glm5check.glm5.dimensions import Dimensions
from glm5check.glm5.tensors import Split, expected_tensors
from glm5check.sharding.contract import read_contract
from glm5check.sharding.partition import module_of

pytestmark = pytest.mark.usefixtures("loaders")


def test_plugin_reads_only_what_vllm_passes(plugin, gguf_set, settings, verdict):
    """Names a drift before anything runs, and the layers of this model that it affects."""
    specs = expected_tensors(Dimensions.from_gguf(gguf_set.metadata))
    merged = {module_of(spec) for spec in specs if spec.role.merged and spec.role.split is Split.ROWS}
    verdict(sharding.loader_contract(read_contract(), sorted(merged), settings.ranks))


@pytest.mark.parametrize("kind", ["merged", "fused", "qkv", "column", "row"])
def test_linear_layers(kind, verdict):
    """gate_up; q_a with kv_a, which every rank holds whole; qkv, loaded alike; q_b; output and down projections."""
    verdict(hold(linear_cases(kind), judge_linear, examples=30))


@pytest.mark.parametrize("kind", ["embedding", "head"])
def test_vocabulary_layers(kind, verdict):
    """Vocabularies that ranks do not divide are padded with zeros."""
    verdict(hold(vocabulary_cases(kind), judge_vocabulary, examples=30))


def test_routed_experts(plugin, verdict):
    """w13 holds gate above up for each expert, whatever came first; w2 is cut along its columns.

    Loaders of vLLM's own tree take the experts of a layer at once, which this does not drive.
    """
    verdict(hold(expert_cases(), judge_experts, examples=15))
