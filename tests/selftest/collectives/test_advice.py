"""What a pre-flight's result is worth: advice with its arithmetic, topology, JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from glm5check.collectives.launch import combinations, forbidden
from glm5check.collectives.recommend import Counts, dispatch_order
from glm5check.collectives.recommend import advise as advise_in
from glm5check.collectives.results import (
    Combination,
    CombinationResult,
    Latency,
    Mode,
    Preflight,
    Status,
    Topology,
    Wrong,
    from_json,
    to_json,
)
from glm5check.collectives.topology import links
from glm5check.errors import SetupError

GLM5 = Counts(all_reduces=157, message_bytes=12_288)
PCIE = Topology(gpus=("GPU",) * 4, links={"0-1": "PHB", "0-2": "SYS", "1-2": "SYS"}, no_peer_access=("0-2",))
MATRIX = """\
        GPU0    GPU1    GPU2    CPU Affinity    NUMA Affinity
GPU0     X      NV18    PHB     0-31    0
GPU1    NV18     X      SYS     0-31    0
GPU2    PHB     SYS      X      32-63   1

Legend:
"""


def took(name: str, replay_us: float, **fields: object) -> CombinationResult:
    row = Latency(size_bytes=12_288, mode=Mode.REPLAY, median_us=replay_us, p99_us=replay_us, net_us=replay_us)
    result = CombinationResult(combination=Combination(*name.split()), status=Status.RIGHT, latencies=(row,))
    return replace(result, **fields)


def preflight(*results: CombinationResult, topology: Topology = PCIE) -> Preflight:
    return Preflight(ranks=8, nodes=1, device="cuda", versions={}, topology=topology, results=results)


def advise(result: Preflight, counts: Counts) -> tuple[str, ...]:
    """Advice for a server whose environment sets nothing."""
    return advise_in(result, counts, {})


def test_a_protocol_that_is_worth_setting() -> None:
    """157 all-reduces of 43 instead of 130 us: 13.66 ms a token less, and the words for vLLM's command line."""
    advice = advise(
        preflight(took("PYNCCL", 130.0), took("PYNCCL Ring LL", 43.0), took("PYNCCL Tree Simple", 200.0)), GLM5
    )
    assert "use PYNCCL Ring LL (set NCCL_ALGO=Ring NCCL_PROTO=LL" in advice[0]
    assert "6.75 ms a token instead of 20.41 (PYNCCL), 13.66 ms less" in advice[0]


def test_nothing_is_faster() -> None:
    assert advise(preflight(took("PYNCCL", 20.0), took("PYNCCL Tree LL", 19.8)), GLM5)[0].startswith("leave PYNCCL")


def test_what_a_server_takes_by_itself_is_the_reference() -> None:
    """With the custom all-reduce working, NCCL's time is no loss that could be won back."""
    advice = advise(preflight(took("PYNCCL", 130.0), took("CUSTOM", 12.0)), GLM5)
    assert advice[0].startswith("leave CUSTOM")


def test_wrong_and_hung_are_never_advised() -> None:
    wrong = Wrong(size_bytes=4096, mode=Mode.REPLAY, rank=1, round=2, what="the result of round 1")
    bad = took("PYNCCL NVLS Simple", 1.0, status=Status.WRONG, wrong=(wrong,))
    advice = advise(preflight(took("PYNCCL", 20.0), bad, took("SYMM_MEM", 2.0, status=Status.HUNG)), GLM5)
    assert advice[0].startswith("never use PYNCCL NVLS Simple: wrong answers, first at 4096 bytes (replay, rank 1)")
    assert advice[1] == "never use SYMM_MEM: it hung"
    assert advice[2].startswith("leave PYNCCL")
    assert not preflight(took("PYNCCL", 20.0), bad).is_right
    assert not preflight().is_right


def test_what_a_pcie_machine_cannot_do_is_said() -> None:
    advice = " ".join(advise(preflight(took("PYNCCL", 20.0)), GLM5))
    assert "fusion is no option here: it needs NVLink or multicast" in advice
    assert "custom all-reduce is no option here" in advice
    assert "GPUs 0-2 have no peer access" in advice
    nvlink = Topology(gpus=("GPU",) * 2, links={"0-1": "NV18"})
    assert len(advise(preflight(took("PYNCCL", 20.0), topology=nvlink), GLM5)) == 1


def test_no_advice_without_results() -> None:
    assert "nothing to advise" in advise(preflight(took("PYNCCL", 1.0, status=Status.UNAVAILABLE)), GLM5)[0]
    assert "says nothing about speed" in advise(replace(preflight(took("TORCH", 9.0)), device="cpu"), GLM5)[0]


def test_the_next_larger_size_stands_for_one_that_was_not_measured() -> None:
    result = took("PYNCCL", 5.0)
    assert result.latency(10_000) == result.latencies[0]
    assert result.latency(12_289) is None


def test_links_of_nvidia_smi() -> None:
    assert links(MATRIX) == {"0-1": "NV18", "0-2": "PHB", "1-2": "SYS"}
    assert links("\x1b[4m" + MATRIX.replace("\n", "\x1b[0m\n")) == links(MATRIX)
    assert links("") == links("No devices were found") == {}
    assert not Topology(gpus=("a",) * 3, links=links(MATRIX)).has_nvlink


def test_json_there_and_back(tmp_path: Path) -> None:
    result = preflight(took("PYNCCL Ring LL", 43.0), took("CUSTOM", 1.0, refused_bytes=(4,)))
    path = tmp_path / "preflight.json"
    path.write_text(to_json(result))
    assert from_json(path) == result
    path.write_text("{}")
    with pytest.raises(SetupError, match="not a pre-flight's result"):
        from_json(path)
    with pytest.raises(SetupError, match="cannot be read"):
        from_json(tmp_path / "missing.json")


def test_every_combination_has_its_environment() -> None:
    with_gpus = combinations(has_gpus=True)
    assert len(set(with_gpus)) == len(with_gpus) == 15
    assert Combination("PYNCCL", "Tree", "LL128").environment == {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL128"}
    assert combinations(has_gpus=False) == [Combination("TORCH")]


def test_multicast_that_is_switched_off_stays_off() -> None:
    off = {"NCCL_NVLS_ENABLE": "0"}
    ruled_out = [str(one) for one in combinations(has_gpus=True) if forbidden(one, off)]
    assert ruled_out == ["PYNCCL NVLS Simple", "NCCL_SYMM_MEM"]
    assert not any(forbidden(one, {}) for one in combinations(has_gpus=True))


def test_what_vllm_asks_first() -> None:
    assert dispatch_order({}, "0.24.0") == ("CUSTOM", "SYMM_MEM", "PYNCCL", "TORCH")
    assert dispatch_order({}, "0.32.0")[0] == "FLASHINFER"
    assert dispatch_order({"VLLM_ALLREDUCE_USE_FLASHINFER": "1"}, "")[0] == "FLASHINFER"
    off = {"VLLM_ALLREDUCE_USE_SYMM_MEM": "0", "VLLM_DISABLE_PYNCCL": "1"}
    assert dispatch_order(off, "0.24.0") == ("CUSTOM", "TORCH")


def test_a_faster_backend_that_is_not_asked() -> None:
    """FlashInfer's all-reduce works here, but vLLM 0.24 leaves it off: switching it on is what is advised."""
    slow_and_fast = preflight(took("PYNCCL", 130.0), took("FLASHINFER", 12.0))
    assert "use FLASHINFER (set VLLM_ALLREDUCE_USE_FLASHINFER=1)" in advise(slow_and_fast, GLM5)[0]
    now_on = advise_in(slow_and_fast, GLM5, {"VLLM_ALLREDUCE_USE_FLASHINFER": "1"})
    assert now_on[0].startswith("leave FLASHINFER")
