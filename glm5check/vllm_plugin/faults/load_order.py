"""The parts of merged layers lie in the order in which they happened to be loaded."""

from __future__ import annotations

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass


def apply() -> None:
    from vllm_gguf_plugin.quantization import linear

    # The adapter happens to yield parts in logical order, where a loader that keeps load order would be right.
    in_order = linear._gguf_ordered_shard_ids
    linear._gguf_ordered_shard_ids = lambda slots: in_order(slots)[::-1]


FAULT = Fault(
    name="load_order",
    fault_class=FaultClass.LOADING,
    stands_for="garbage output of a real deployment: merged GGUF layers joined in load order, not in logical order",
    seeded="every merged linear layer holds its last part first",
    caught_by="tests/sharding/test_live_digests.py::test_every_rank_holds_the_bytes_of_the_files",
    says="other bytes",
    apply=apply,
)
