"""The server that is under test holds, on every rank, exactly what the files say: digests from inside the workers.

Proves every byte of every parameter that vLLM keeps as loaded. Cannot see weights that are packed for a kernel; the
coverage names those. For a 744B model this is one pass over the files at the disk's speed, ranks in parallel.
"""

from __future__ import annotations

import pytest

from glm5check.checks import sharding
from glm5check.sharding.live import Reference, read_parameters

pytestmark = pytest.mark.timeout(7200)


@pytest.fixture(scope="module")
def live(server, progress):
    """Every parameter of every rank."""
    return read_parameters(server.client.collective_rpc, progress)


@pytest.fixture(scope="module")
def expected(live, gguf_set, progress):
    """What the files say of them."""
    ranks = 1 + max(parameter.rank for parameter in live)
    progress(f"digesting the files for {ranks} ranks")
    return Reference(gguf_set, ranks).expectations(live)


def test_every_rank_holds_the_bytes_of_the_files(live, expected, verdict):
    verdict(sharding.live_parameters(live, expected))


def test_every_tensor_is_held_by_a_parameter(live, expected, gguf_set, verdict):
    verdict(sharding.live_coverage(live, expected, gguf_set.tensors.keys()))


def test_output_matrix_is_not_the_embedding(live, verdict):
    verdict(sharding.separate_memory(live))
