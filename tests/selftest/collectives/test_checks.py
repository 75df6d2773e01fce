"""What collectives cost: healthy recordings pass, and each seeded fault fails the check of its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest

from fixtures import DATA
from glm5check.checks import collectives
from glm5check.collectives.results import (
    Combination,
    CombinationResult,
    Latency,
    Mode,
    Preflight,
    Status,
    Topology,
)
from glm5check.evidence import Recording
from glm5check.records import Finding, Outcome
from glm5check.trace.latency import Part, divisions, reduction_times
from glm5check.trace.recording import read_recording

MESSAGE = 12_288


@lru_cache(maxsize=8)
def recorded(name: str) -> Recording:
    return read_recording([DATA / "graphs" / name])


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


def preflight(**net_us: float) -> Preflight:
    """A pre-flight in which each combination (`PYNCCL_Ring_LL`) takes so many microseconds."""
    results = [
        CombinationResult(
            combination=Combination(*name.split("_")),
            status=Status.RIGHT,
            latencies=(Latency(size_bytes=MESSAGE, mode=Mode.REPLAY, median_us=us, p99_us=us, net_us=us),),
        )
        for name, us in net_us.items()
    ]
    return Preflight(ranks=2, nodes=1, device="cuda", versions={}, topology=Topology(), results=tuple(results))


@pytest.mark.parametrize(
    ("name", "net_us", "skew_us"),
    [
        ("full", 7.1, 1.5),
        ("piecewise", 7.2, 604.4),
        ("customar", 3.9, 0.6),
        ("eager", 7.5, 1723.8),
        ("simple", 28.2, 1.2),
    ],
)
def test_net_and_skew(name: str, net_us: float, skew_us: float) -> None:
    """An eager all-reduce moves its data as fast as a captured one; what it costs is waiting for the other rank."""
    times = reduction_times(recorded(name).ranks)
    assert times is not None
    assert len(times.net_us) == 9 * 17
    assert (times.median_net_us, times.median_skew_us) == pytest.approx((net_us, skew_us), abs=0.1)


def test_net_is_the_least_of_the_ranks() -> None:
    """A rank whose all-reduces last 100 us longer waits 100 us longer; the net time stays."""
    first, second = recorded("full").ranks
    slow = tuple(
        replace(step, collectives=tuple(replace(one, duration_us=one.duration_us + 100) for one in step.collectives))
        for step in second.steady
    )
    before, after = reduction_times([first, second]), reduction_times([first, replace(second, steady=slow)])
    assert before is not None
    assert after is not None
    assert after.median_net_us == pytest.approx(before.median_net_us, rel=0.1)
    assert after.median_skew_us > before.median_skew_us + 90
    assert reduction_times([first]) is None
    assert reduction_times([first, replace(second, steady=second.steady[:-1])]) is None


@pytest.mark.parametrize("name", ["full", "piecewise", "customar", "eager", "simple"])
def test_parts_sum_to_the_step(name: str) -> None:
    for division in divisions(recorded(name).ranks):
        assert sum(division.parts_us.values()) == pytest.approx(division.step_us)
        longer = division.lasting(2 * division.step_us)
        assert longer.step_us == pytest.approx(2 * division.step_us)
        assert longer.parts_us[Part.MOE] == division.parts_us[Part.MOE]


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("full", Outcome.PASSED),
        ("customar", Outcome.PASSED),
        ("piecewise", Outcome.PASSED),
        ("simple", Outcome.FAILED),
    ],
)
def test_protocol(name: str, outcome: Outcome) -> None:
    """NCCL_PROTO=Simple fails although its kernels are called ..._RING_LL."""
    finding = only(collectives.the_protocol_suits_the_message(recorded(name), MESSAGE, None))
    assert finding.outcome is outcome
    if outcome is Outcome.FAILED:
        assert "NCCL_PROTO=LL" in finding.cause


def test_protocol_without_a_tuning_line() -> None:
    without = replace(recorded("full"), nccl=())
    assert only(collectives.the_protocol_suits_the_message(without, MESSAGE, None)).outcome is Outcome.INCONCLUSIVE
    told = only(collectives.the_protocol_suits_the_message(recorded("full"), MESSAGE, preflight(PYNCCL_Tree_LL=6.0)))
    assert "fastest is PYNCCL Tree LL" in told.got


def test_latency_against_the_preflight() -> None:
    """28 us where the same machine's LL takes 7.4: Simple is compared with Simple, if that was measured too."""
    check = collectives.all_reduces_are_as_fast_as_alone
    alone = preflight(PYNCCL=7.4, PYNCCL_Ring_Simple=28.0)
    assert only(check(recorded("full"), MESSAGE, alone)).outcome is Outcome.PASSED
    assert "PYNCCL Ring Simple" in only(check(recorded("simple"), MESSAGE, alone)).got
    slow = only(check(recorded("simple"), MESSAGE, preflight(PYNCCL=7.4)))
    assert slow.outcome is Outcome.FAILED
    assert "28.2 us net against 7.4 us of PYNCCL" in slow.got
    assert only(check(recorded("customar"), MESSAGE, preflight(CUSTOM=3.9))).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("alone", "told"),
    [
        (None, "no pre-flight to compare with"),
        (replace(preflight(PYNCCL=7.4), device="cpu"), "rehearsal"),
        (preflight(CUSTOM=3.9), "no right result for the backend"),
    ],
)
def test_latency_without_a_reference(alone: Preflight | None, told: str) -> None:
    finding = only(collectives.all_reduces_are_as_fast_as_alone(recorded("full"), MESSAGE, alone))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert told in finding.got


def test_bandwidth() -> None:
    """2 GB in 3.035 ms are 659 GB/s: a fifth of 3,350 GB/s, and impossible on a card of 500."""
    check = collectives.bandwidth_is_possible
    assert "659 of 3350 GB/s, 20%" in only(check(recorded("full"), 2e9, 3.35e12)).got
    impossible = only(check(recorded("full"), 2e9, 500e9))
    assert impossible.outcome is Outcome.FAILED
    assert "measured wrongly" in impossible.cause
    assert only(check(recorded("full"), 2e9, None)).outcome is Outcome.INCONCLUSIVE
    assert only(check(Recording(source="nothing"), 2e9, 1e12)).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("full", Outcome.PASSED),
        ("customar", Outcome.PASSED),
        ("simple", Outcome.PASSED),
        ("piecewise", Outcome.FAILED),
        ("eager", Outcome.FAILED),
    ],
)
def test_what_bounds_a_step(name: str, outcome: Outcome) -> None:
    """Eager, 94 % of a step is the GPU waiting for launches, PIECEWISE 80 %; the arithmetic is in the words."""
    finding = only(collectives.work_bounds_the_step(recorded(name)))
    assert finding.outcome is outcome
    assert "us = gaps between kernels" in finding.got
    assert "MoE" in finding.got
    if outcome is Outcome.FAILED:
        assert "launches" in finding.cause


def test_what_bounds_a_step_without_its_unprofiled_time() -> None:
    """A profiler's own work shows up as gaps, so from the profile alone idling is no verdict."""
    finding = only(collectives.work_bounds_the_step(replace(recorded("eager"), inter_token_us=None)))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert only(collectives.work_bounds_the_step(Recording(source="nothing"))).outcome is Outcome.INCONCLUSIVE


def test_a_model_too_small_for_its_gpu_is_not_blamed_for_idling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model has 220 us of work a step on an H200, whose host takes 2 ms whatever is captured."""
    monkeypatch.setattr(collectives, "JUDGED_WORK_US", 2000.0)
    finding = only(collectives.work_bounds_the_step(recorded("eager")))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "us of work: too small a model" in finding.got


def test_measurements_for_the_report() -> None:
    found = {one.name: one for one in collectives.measurements(recorded("full"))}
    assert len(found["all-reduce net"].samples) == 153
    assert found["step: gaps between kernels"].samples[0] == pytest.approx(1088, abs=2)
    assert collectives.measurements(Recording(source="nothing")) == []


Check = Callable[[Recording], list[Finding]]


@pytest.mark.parametrize(
    "check",
    [
        lambda one: collectives.all_reduces_are_as_fast_as_alone(one, MESSAGE, preflight(PYNCCL=7.4)),
        collectives.work_bounds_the_step,
    ],
)
def test_incomplete_traces_never_pass(check: Check) -> None:
    cut = replace(recorded("full"), ranks=recorded("full").ranks[:1])
    assert only(check(cut)).outcome is Outcome.INCONCLUSIVE
