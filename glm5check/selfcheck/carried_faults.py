"""Faults that no acceptance test can be led to here: each is carried by a self-test, which passes if it is caught.

What they need is not in this machine (GPUs and their clocks, several nodes), or lies inside one process.
"""

from __future__ import annotations

from typing import Any, Final

from glm5check.selfcheck.seeded import Place, SeededFault, with_options
from glm5check.vllm_plugin.faults.fault import FaultClass

PROCESSES: Final = "tests/selftest/collectives/test_processes.py"
LOADERS: Final = "tests/selftest/sharding/test_faults.py"


def _carried(name: str, fault_class: FaultClass, place: Place, caught_by: str, **words: Any) -> SeededFault:
    return SeededFault(
        name=name,
        fault_class=fault_class,
        seeded_in=place,
        caught_by=caught_by,
        seed=with_options(),
        **words,
    )


FAULTS: Final = (
    _carried(
        "stale_all_reduce",
        FaultClass.ALL_REDUCE,
        Place.COLLECTIVE,
        f"{PROCESSES}::test_stale_result_in_replay",
        stands_for="a replayed all-reduce that leaves an earlier round's result in its output",
        seeded="two processes over gloo; replays return the result of the capture",
    ),
    _carried(
        "corrupt_all_reduce",
        FaultClass.ALL_REDUCE,
        Place.COLLECTIVE,
        f"{PROCESSES}::test_a_corrupt_run_below_4_kib",
        stands_for="all-reduces that are wrong for some message sizes only",
        seeded="two processes over gloo; 512 bytes of rank 1's result are wrong",
    ),
    _carried(
        "hanging_all_reduce",
        FaultClass.LIVENESS,
        Place.COLLECTIVE,
        f"{PROCESSES}::test_a_hang_leaves_the_ranks_stacks",
        stands_for="a rank that does not come to an all-reduce, and a server that waits for ever",
        seeded="two processes over gloo; rank 1 stays away from the second all-reduce of a size",
    ),
    _carried(
        "deaf_all_reduce",
        FaultClass.ALL_REDUCE,
        Place.COLLECTIVE,
        "tests/selftest/collectives/test_command.py::test_a_fault_that_is_caught",
        stands_for="a rank whose share never arrives: plausible numbers, and other ones on each rank",
        seeded="two processes over gloo; rank 1 sums without rank 0",
    ),
    _carried(
        "kernel_drops_minimum",
        FaultClass.KERNELS,
        Place.SERVER,
        "tests/selftest/dequant/test_faults.py::test_a_kernel_that_drops_the_minimum_is_seen",
        stands_for="quant kernels on new GPUs that decode one part of a super-block wrongly",
        seeded="Q4_K decoded without its blocks' minima",
    ),
    _carried(
        "kernel_moves_super_block",
        FaultClass.KERNELS,
        Place.SERVER,
        "tests/selftest/dequant/test_faults.py::TestProduct::test_one_super_block_at_a_wrong_place_is_seen",
        stands_for="a matrix product that reads super-blocks in another order than they are stored in",
        seeded="one super-block of each row at another one's place",
    ),
    _carried(
        "drafts_collapse",
        FaultClass.SPECULATION,
        Place.SERVER,
        "tests/selftest/speculative/test_speculative_can_fail.py::test_a_collapse_behind_the_first_position_is_seen",
        stands_for="a multi-token-prediction head whose norm was lost: drafts are accepted at their first token only",
        seeded="counters of a server that accepts hardly any second draft token",
    ),
    _carried(
        "loader_joins_in_load_order",
        FaultClass.LOADING,
        Place.SERVER,
        f"{LOADERS}::TestLoadOrder::test_the_property_finds_it[merged]",
        stands_for="garbage output of a real deployment: parts of merged GGUF layers joined in load order",
        seeded="the installed loader joins parts as they come, for any order, type and number of ranks",
    ),
    _carried(
        "indexer_beyond_topk",
        FaultClass.INDEXER,
        Place.SERVER,
        "tests/selftest/oracles/test_against_each_other.py::test_an_indexer_fault_shows_only_beyond_index_topk[640-True]",
        stands_for="an indexer that rotates halves: nothing below index_topk, token salad beyond",
        seeded="transformers' indexer rotates halves, on 640 tokens where 512 are kept",
    ),
    _carried(
        "profile_of_another_start",
        FaultClass.GRAPHS,
        Place.EVIDENCE,
        "tests/selftest/graphs/test_seeded_faults.py::test_profile_from_another_configuration",
        stands_for="a profile taken with --enforce-eager that explained a benchmark which ran in graphs",
        seeded="the fingerprint of the profile differs from that of the measured server",
    ),
    _carried(
        "clocks_throttled",
        FaultClass.SPEED,
        Place.LOAD,
        "tests/selftest/throughput/test_checks.py::TestMachine::test_throttled_clocks_fail",
        stands_for="GPUs that are hot or capped: speed is measured on a slower machine than it is judged for",
        seeded="NVML's answers of an H200 with a power cap, with locked clocks, too hot",
    ),
    _carried(
        "faster_than_hardware",
        FaultClass.SPEED,
        Place.LOAD,
        "tests/selftest/throughput/test_checks.py::TestBound::test_faster_than_the_hardware_is_a_wrong_measurement",
        stands_for="a client that counts tokens twice: a speed that memory bandwidth does not allow",
        seeded="a measured speed above the roofline",
    ),
    _carried(
        "stopped_worker",
        FaultClass.LIVENESS,
        Place.SERVER,
        "tests/selftest/serving/test_bad_set_ups.py::test_a_wrong_set_up_is_told_in_our_words[hanging]",
        stands_for="a stopped worker behind a live API: /health and /v1/models answer, no request ever ends",
        seeded="a server that lists its model and never answers a completion",
    ),
)
