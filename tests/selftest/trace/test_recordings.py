"""Each recording reads as what its row in fixtures/data/graphs/README.md says it is."""

from __future__ import annotations

import gzip
import statistics
from pathlib import Path

import pytest

from fixtures import DATA
from glm5check.evidence import Family, GraphMode, LaunchKind, Operation, Work
from glm5check.trace.recording import read_ranks, read_recording
from glm5check.trace.steps import infer_layers

ROWS = [
    # name, mode of steady steps, all-reduces in graphs of 204, graph launches, median all-reduce of rank 0 in us
    pytest.param("full", GraphMode.FULL, 204, 20, 7.4, id="full"),
    pytest.param("piecewise", GraphMode.PIECEWISE, 204, 108, 7.5, id="piecewise"),
    pytest.param("customar", GraphMode.FULL, 204, 20, 4.0, id="customar"),
    pytest.param("eager", GraphMode.NONE, 0, 0, 1700.0, id="eager"),
    pytest.param("simple", GraphMode.FULL, 204, 20, 28.8, id="simple"),
]


def traces(name: str) -> list[Path]:
    return sorted((DATA / "graphs" / name).glob("rank*.json.gz"))


@pytest.mark.parametrize(("name", "mode", "in_graphs", "launches", "median_us"), ROWS)
def test_counts_and_medians(name: str, mode: GraphMode, in_graphs: int, launches: int, median_us: float) -> None:
    for trace in read_ranks(traces(name)):
        kernels = [kernel for step in trace.steps for kernel in step.all_reduces]
        assert len(kernels) == 204
        assert sum(kernel.launch is LaunchKind.GRAPH for kernel in kernels) == in_graphs
        assert sum(step.graph_launches for step in trace.steps) == launches
        assert {step.mode for step in trace.steady} == {mode}
        assert (trace.orphans, trace.early_kernels) == (0, 0)
        if trace.rank == 0:
            assert statistics.median(kernel.duration_us for kernel in kernels) == pytest.approx(median_us, rel=0.01)


@pytest.mark.parametrize("name", ["full", "piecewise", "customar", "eager", "simple"])
def test_steps(name: str) -> None:
    """One prefill step, 11 decode steps of which the first and last are dropped, 2 empty ones; 8 layers."""
    ranks = read_ranks(traces(name))
    for trace in ranks:
        assert [step.is_decode for step in trace.steps] == [False] + 11 * [True] + 2 * [False]
        assert [step.index for step in trace.steady] == list(range(2, 11))
        assert {len(step.all_reduces) for step in trace.steady} == {17}
        gathers = [kernel for step in trace.steady for kernel in step.collectives if kernel not in step.all_reduces]
        assert [kernel.operation for kernel in gathers] == 9 * [Operation.ALL_GATHER]
        assert {kernel.launch for kernel in gathers} == {LaunchKind.EAGER}
        assert (trace.world_size, trace.device, trace.nccl_version) == (2, "NVIDIA H200", "2.28.9")
    assert infer_layers(ranks) == 8


@pytest.mark.parametrize(
    ("name", "mode", "launches", "step_us"),
    [
        ("gguf-full", GraphMode.FULL, 20, 14_452),
        ("gguf-piecewise", GraphMode.PIECEWISE, 108, 14_463),
        ("gguf-eager", GraphMode.NONE, 0, 31_703),
    ],
)
def test_one_rank_with_gguf_weights(name: str, mode: GraphMode, launches: int, step_us: float) -> None:
    """The mode of each step and where its time goes; one rank has no all-reduce."""
    (trace,) = read_ranks(traces(name))
    assert [step.is_decode for step in trace.steps] == [False] + 11 * [True] + 2 * [False]
    assert {step.mode for step in trace.steady} == {mode}
    assert sum(step.graph_launches for step in trace.steps) == launches
    assert not any(step.all_reduces for step in trace.steps)
    assert (trace.orphans, trace.early_kernels, trace.world_size) == (0, 0, 1)
    periods = [step.period_us for step in trace.steady if step.period_us is not None]
    assert statistics.median(periods) == pytest.approx(step_us, rel=0.001)
    for step in trace.steady:
        assert step.busy_us[Work.GEMM] > 3 * step.busy_us[Work.MOE] > 30 * step.busy_us[Work.ATTENTION]


@pytest.mark.parametrize(
    ("name", "mode", "launches", "step_us"),
    [
        ("gguf-tp2-full", GraphMode.FULL, 20, 3_512),
        ("gguf-tp2-piecewise", GraphMode.PIECEWISE, 108, 10_814),
        ("gguf-tp2-eager", GraphMode.NONE, 0, 21_306),
    ],
)
def test_two_ranks_with_gguf_weights(name: str, mode: GraphMode, launches: int, step_us: float) -> None:
    """17 all-reduces a step, vLLM's own."""
    ranks = read_ranks(traces(name))
    assert len(ranks) == 2
    for trace in ranks:
        assert {step.mode for step in trace.steady} == {mode}
        assert sum(step.graph_launches for step in trace.steps) == launches
        assert {len(step.all_reduces) for step in trace.steady} == {17}
        assert {kernel.family for step in trace.steady for kernel in step.all_reduces} == {Family.VLLM_CUSTOM}
    periods = [step.period_us for step in ranks[0].steady if step.period_us is not None]
    assert statistics.median(periods) == pytest.approx(step_us, rel=0.001)


def test_family_by_kernel_name() -> None:
    custom, nccl = read_ranks(traces("customar"))[0], read_ranks(traces("simple"))[0]
    assert {kernel.family for step in custom.steps for kernel in step.all_reduces} == {Family.VLLM_CUSTOM}
    assert {kernel.family for step in nccl.steps for kernel in step.all_reduces} == {Family.NCCL}
    assert all("RING_LL" in kernel.name for step in nccl.steady for kernel in step.all_reduces)


@pytest.mark.parametrize("name", ["full", "eager"])
def test_division_of_a_step_leaves_gaps(name: str) -> None:
    """What a step's kernels cover is at most its period, whatever streams they overlap on."""
    for trace in read_ranks(traces(name)):
        for step in trace.steady:
            assert step.period_us is not None
            assert 0 < sum(step.busy_us.values()) <= step.period_us * (1 + 1e-9)
            assert min(step.busy_us.values()) >= 0


def test_many_ranks_in_processes_equal_one_by_one(tmp_path: Path) -> None:
    """Eight large ranks go through processes; the records are the same as without them."""
    source = traces("eager")
    for rank in range(8):
        text = gzip.decompress(source[rank % 2].read_bytes())
        (tmp_path / f"rank{rank}.pt.trace.json").write_bytes(text.replace(b'"rank": ', b'"ranc": '))
    ranks = read_ranks(sorted(tmp_path.iterdir()))
    assert [trace.rank for trace in ranks] == list(range(8))
    reference = read_ranks(source)
    for trace in ranks:
        assert trace.steps == reference[trace.rank % 2].steps


def test_a_directory_brings_its_logs() -> None:
    recording = read_recording([DATA / "graphs" / "full"])
    assert len(recording.ranks) == 2
    assert recording.facts is not None
    assert recording.info is not None
    assert len(recording.nccl) == 1
    assert recording.inter_token_us == pytest.approx(3035.1, abs=0.1)
