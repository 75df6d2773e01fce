"""Steps of profiles of a few kernels, each at a time that can be counted out."""

from __future__ import annotations

from pathlib import Path

import pytest

from glm5check.errors import TraceError
from glm5check.evidence import Family, GraphMode, LaunchKind, Operation, RankTrace, Work
from glm5check.trace.events import Device, Distributed, Header
from glm5check.trace.profile import Annotation, Kernel, Launch, Profile
from glm5check.trace.steps import infer_layers, rank_trace

REDUCE, GATHER = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclDevKernel_AllGather_RING_LL"
GEMM, MOE, ATTENTION, NORM = "gemm", "fused_moe", "flash_fwd", "rms_norm"
CACHE = "concat_and_cache_mla"
HEADER = Header(distributed=Distributed(rank=3, world_size=8, nccl_version="2.28"), devices=[Device(name="H200")])


def mark(start, prefill=0, decode=1, tokens=1):
    return Annotation(float(start), 5.0, prefill, decode, tokens)


def kernel(name, start, us, correlation, node=None):
    return Kernel(name, float(start), float(us), correlation, node)


def traced(kernels, launches, marks, header=HEADER, name="x.json") -> RankTrace:
    profile = Profile(Path("/a") / name, header, list(kernels), [Launch(*launch) for launch in launches], list(marks))
    return rank_trace(profile)


def step_of(kernels, launches=None):
    """The first step of a profile whose second step begins at 1000 us on the GPU."""
    launches = launches or [(1.0, one.correlation, False) for one in kernels]
    after = kernel(NORM, 1000, 1, 99)
    return traced([*kernels, after], [*launches, (500.0, 99, False)], [mark(0), mark(500)]).steps[0]


def test_what_a_file_says_about_itself():
    found = traced([], [], [])
    assert (found.source, found.rank, found.world_size, found.device) == ("x.json", 3, 8, "H200")
    assert (found.vllm_version, found.nccl_version) == ("", "2.28")
    assert (found.steps, found.steady, found.kernels, found.orphans, found.early_kernels) == ((), (), 0, 0, 0)
    versioned = traced([], [], [], Header(vllm_version="0.24.0"), "dp0_rank12.pt.trace.json")
    assert (versioned.rank, versioned.world_size, versioned.device, versioned.vllm_version) == (12, None, "", "0.24.0")
    assert versioned.nccl_version == ""


@pytest.mark.parametrize(("name", "rank"), [("rank0.json", 0), ("tp_rank7_x.json", 7), ("rank123456.gz", 123456)])
def test_the_rank_comes_from_the_name_where_the_file_does_not_say(name, rank):
    assert traced([], [], [], Header(distributed=Distributed(world_size=2)), name).rank == rank


@pytest.mark.parametrize("name", ["ranks.json", "rank1", "rank1234567.json", "x.json"])
def test_a_trace_of_nobody_is_refused(name):
    with pytest.raises(TraceError) as caught:
        traced([], [], [], Header(), name)
    assert caught.value.what == "neither the trace nor its name says which rank it is of"
    assert caught.value.where == f"/a/{name}"
    assert caught.value.do == "name the files rank0.pt.trace.json, rank1.pt.trace.json, ..."


def test_kernels_belong_to_the_step_that_launched_them_whenever_they_ran():
    found = traced(
        [kernel(GEMM, 900, 10, 1), kernel(NORM, 910, 10, 2), kernel(MOE, 20, 5, 3), kernel(NORM, 1, 1, 4)],
        [(10.0, 1, False), (99.0, 2, False), (100.0, 3, False), (9.0, 4, False)],
        [mark(100, prefill=2, decode=3, tokens=7), mark(10)],
    )
    first, second = found.steps
    assert (first.index, first.start_us, first.kernels) == (0, 10.0, 2)  # the kernel before the first mark is in none
    assert (second.index, second.start_us, second.kernels) == (1, 100.0, 1)
    assert (second.prefill_requests, second.decode_requests, second.decode_tokens) == (2, 3, 7)
    assert found.kernels == 4


@pytest.mark.parametrize(
    ("is_graph", "node", "kind"),
    [
        (True, None, LaunchKind.GRAPH),
        (True, 7, LaunchKind.GRAPH),
        (True, 0, LaunchKind.CONTRADICTION),
        (False, None, LaunchKind.EAGER),
        (False, 0, LaunchKind.EAGER),
        (False, 7, LaunchKind.CONTRADICTION),
    ],
)
def test_what_launched_a_collective(is_graph, node, kind):
    (found,) = step_of([kernel(REDUCE, 10, 4, 1, node)], [(1.0, 1, is_graph)]).collectives
    assert (found.launch, found.family, found.operation) == (kind, Family.NCCL, Operation.ALL_REDUCE)
    assert (found.name, found.start_us, found.duration_us) == (REDUCE, 10.0, 4.0)


def test_two_calls_of_one_id_that_disagree_contradict_each_other():
    found = step_of(
        [kernel(REDUCE, 10, 4, 1), kernel(GATHER, 5, 4, 2)],
        [(1.0, 1, True), (2.0, 1, False), (3.0, 2, True), (4.0, 2, True)],
    )
    assert [one.launch for one in found.collectives] == [LaunchKind.GRAPH, LaunchKind.CONTRADICTION]
    assert [one.operation for one in found.collectives] == [Operation.ALL_GATHER, Operation.ALL_REDUCE]
    assert [one.name for one in found.all_reduces] == [REDUCE]


def test_graph_launches_and_cache_writes_are_counted():
    kernels = [kernel(CACHE, 1, 1, 1), kernel(CACHE, 2, 1, 1), kernel(NORM, 3, 1, 2), kernel(CACHE, 4, 1, 3)]
    found = step_of(kernels, [(1.0, 1, True), (2.0, 2, True), (3.0, 3, False)])
    assert (found.graph_launches, found.cache_writes, found.kernels) == (2, 3, 4)


@pytest.mark.parametrize(
    ("sizes", "eager", "mode"),
    [
        ([], 0, GraphMode.UNKNOWN),
        ([], 3, GraphMode.NONE),
        ([1], 9, GraphMode.FULL),
        ([3, 2], 0, GraphMode.FULL),
        ([2, 2], 0, GraphMode.PIECEWISE),
        ([2, 1, 1], 0, GraphMode.PIECEWISE),
        ([1, 1, 3], 0, GraphMode.FULL),
    ],
)
def test_a_step_is_full_if_one_graph_has_more_than_half_of_its_graph_kernels(sizes, eager, mode):
    kernels = [kernel(NORM, 1, 1, graph) for graph, size in enumerate(sizes) for _ in range(size)]
    kernels += [kernel(NORM, 1, 1, 50 + i) for i in range(eager)]
    launches = [(1.0, graph, True) for graph in range(len(sizes))] + [(1.0, 50 + i, False) for i in range(eager)]
    assert step_of(kernels, launches).mode is mode


def test_a_kernel_without_a_launch_is_an_orphan_of_no_step():
    found = traced([kernel(NORM, 1, 1, 1), kernel(NORM, 2, 1, 7), kernel(NORM, 3, 1, -1)], [(1.0, 1, False)], [mark(0)])
    assert (found.orphans, found.kernels, found.steps[0].kernels) == (2, 3, 1)


def test_kernels_far_before_their_launch_are_counted():
    """50 us are the error of the clocks; one that is exactly so early is none."""
    kernels = [kernel(NORM, 50, 1, 1), kernel(NORM, 49.9, 1, 1), kernel(NORM, 0, 1, 1), kernel(NORM, 0, 1, 5)]
    assert traced(kernels, [(100.0, 1, False)], [mark(0)]).early_kernels == 2


def chain(decodes, collectives=()):
    """One step a mark, 100 us apart, each with one all-reduce of its own; more kernels without a launch."""
    marks = [mark(100 * i, prefill=0 if one else 1) for i, one in enumerate(decodes)]
    kernels = [kernel(REDUCE, 100 * i + 10, 4, i) for i in range(len(decodes))]
    launches = [(100.0 * i + 1, i, True) for i in range(len(decodes))]
    return traced([*kernels, *collectives], launches, marks)


@pytest.mark.parametrize(
    ("decodes", "steady"),
    [
        ([1, 1, 1, 1], [1, 2]),
        ([0, 1, 1, 1, 1, 0], [2, 3]),
        ([1, 1, 0, 1, 1, 1], [4]),
        ([1, 1], []),
        ([0, 1, 0], []),
        ([1, 0, 1], []),
    ],
)
def test_steady_steps_stand_between_decode_steps(decodes, steady):
    assert [step.index for step in chain(decodes).steady] == steady


@pytest.mark.parametrize(
    ("start", "name", "count"),
    [(110, GATHER, 1), (109, GATHER, 0), (210, GATHER, 1), (211, GATHER, 0), (150, REDUCE, 1), (150, NORM, 0)],
)
def test_orphan_collectives_count_from_the_first_to_the_last_steady_one(start, name, count):
    found = chain([1, 1, 1, 1], [kernel(name, start, 1, 77)])
    assert found.steady_orphans == count


def test_without_steady_collectives_every_orphan_collective_counts():
    found = traced([kernel(REDUCE, 5, 1, 7), kernel(GATHER, 900, 1, 7), kernel(NORM, 5, 1, 7)], [], [mark(0)])
    assert (found.steady_orphans, found.orphans) == (2, 3)


def test_a_period_runs_from_first_kernel_to_first_kernel():
    found = traced(
        [
            kernel(NORM, 40, 5, 1),
            kernel(GEMM, 30, 5, 1),
            kernel(NORM, 130, 5, 2),
            kernel(NORM, 110, 1, 2),
            kernel(NORM, 105, 1, 4),
        ],
        [(1.0, 1, False), (101.0, 2, False), (301.0, 4, False)],
        [mark(0), mark(100), mark(200), mark(300)],
    )
    assert [step.period_us for step in found.steps] == [80.0, None, None, None]
    assert found.steps[1].busy_us == {}
    backwards = traced(
        [kernel(NORM, 40, 5, 1), kernel(NORM, 40, 5, 2)], [(1.0, 1, False), (101.0, 2, False)], [mark(0), mark(100)]
    )
    assert backwards.steps[0].period_us is None


def busy(*kernels):
    found = step_of(list(kernels))
    assert found.period_us == 1000.0 - min(one.start_us for one in kernels)
    assert set(found.busy_us) == set(Work)
    return {work: us for work, us in found.busy_us.items() if us}


def test_time_is_divided_by_kind_of_work():
    assert busy(
        kernel(MOE, 0, 10, 1),
        kernel(ATTENTION, 10, 20, 2),
        kernel(GEMM, 40, 30, 3),
        kernel(NORM, 70, 5, 4),
        kernel(GATHER, 80, 7, 5),
        kernel(REDUCE, 90, 9, 6),
    ) == {
        Work.MOE: 10.0,
        Work.ATTENTION: 20.0,
        Work.GEMM: 30.0,
        Work.OTHER: 5.0,
        Work.COLLECTIVE: 7.0,
        Work.ALL_REDUCE: 9.0,
    }


def test_overlapping_time_goes_to_the_first_kind_and_is_never_counted_twice():
    """MoE from 0 to 100; an all-reduce from 50 to 150 is exposed for 50; a GEMM within both for nothing."""
    assert busy(kernel(REDUCE, 50, 100, 1), kernel(MOE, 0, 100, 2), kernel(GEMM, 60, 30, 3)) == {
        Work.MOE: 100.0,
        Work.ALL_REDUCE: 50.0,
    }


def test_a_long_kernel_covers_those_that_begin_and_end_within_it():
    assert busy(kernel(MOE, 0, 100, 1), kernel(MOE, 10, 20, 2), kernel(MOE, 120, 10, 3), kernel(MOE, 90, 20, 4)) == {
        Work.MOE: 120.0
    }


def test_what_lies_beyond_the_period_is_the_next_steps():
    assert busy(kernel(MOE, 950, 100, 1)) == {Work.MOE: 50.0}


def written(*counts):
    marks = [mark(100 * i) for i in range(len(counts))]
    kernels = [kernel(CACHE, 100 * i + 10, 1, i) for i, count in enumerate(counts) for _ in range(count)]
    return traced(kernels, [(100.0 * i + 1, i, True) for i in range(len(counts))], marks)


@pytest.mark.parametrize(
    ("ranks", "layers"),
    [
        ([written(9, 4, 4, 1)], 4),
        ([written(4, 4, 4), written(4, 4, 4)], 4),
        ([written(4, 4, 4), written(3, 3, 3)], None),
        ([written(4, 4, 3, 3)], None),
        ([written(0, 0, 0)], None),
        ([written(1, 1)], None),
        ([], None),
    ],
)
def test_layers_are_what_every_steady_step_writes(ranks, layers):
    assert infer_layers(ranks) == layers
