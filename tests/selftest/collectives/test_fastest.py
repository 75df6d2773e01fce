"""The fastest all-reduce of a pre-flight, which bounds a decode step: of right ones, on GPUs, of that size or more."""

from __future__ import annotations

from dataclasses import replace

from glm5check.collectives.results import Combination, CombinationResult, Latency, Mode, Preflight, Status, Topology


def took(name: str, net_us: float, *, size: int = 12_288, status: Status = Status.RIGHT) -> CombinationResult:
    row = Latency(size_bytes=size, mode=Mode.REPLAY, median_us=2 * net_us, p99_us=9 * net_us, net_us=net_us)
    return CombinationResult(combination=Combination(name), status=status, latencies=(row,))


def preflight(*results: CombinationResult) -> Preflight:
    return Preflight(ranks=2, nodes=1, device="cuda", versions={}, topology=Topology(), results=results)


def test_the_least_net_time_of_right_combinations_counts() -> None:
    found = preflight(
        took("PYNCCL", 8.4), took("CUSTOM", 5.3), took("BROKEN", 1.0, status=Status.WRONG), took("TINY", 0.5, size=4)
    ).fastest(12_288)
    assert found is not None
    assert (found[0], str(found[1].combination)) == (5.3, "CUSTOM")


def test_a_rehearsal_and_wrong_answers_bound_nothing() -> None:
    assert replace(preflight(took("TORCH", 90.0)), device="cpu").fastest(12_288) is None
    assert preflight(took("PYNCCL", 8.4, status=Status.HUNG)).fastest(12_288) is None
