"""Healthy and unhealthy recordings get the verdict of their row: eager fails, everything else is in graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from glm5check.checks import graphs
from glm5check.checks.contradictions import nothing_contradicts
from glm5check.evidence import GraphMode, Recording
from glm5check.records import Finding, Outcome
from glm5check.tolerances import NCCL_QUIET_STEPS

EXPECTED = 2 * 8 + 1
CHECKS: dict[str, Callable[[Recording], list[Finding]]] = {
    "enabled": graphs.graphs_are_on,
    "slow_path": graphs.no_slow_path,
    "mode": graphs.every_step_ran_in_the_expected_mode,
    "in_graph": graphs.all_reduces_are_in_graphs,
    "count": lambda recording: graphs.all_reduces_are_complete(recording, EXPECTED),
    "family": graphs.the_chosen_family_ran,
    "nccl_silent": lambda recording: graphs.nccl_was_silent(recording, steps=NCCL_QUIET_STEPS),
    "consistent": nothing_contradicts,
}


def outcomes(findings: list[Finding]) -> set[Outcome]:
    assert findings, "a check that says nothing"
    return {finding.outcome for finding in findings}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ["full", "piecewise", "customar", "simple"])
def test_in_graphs(recording: Callable[[str], Recording], name: str, check: str) -> None:
    assert outcomes(CHECKS[check](recording(name))) == {Outcome.PASSED}


@pytest.mark.parametrize("check", CHECKS)
def test_eager(recording: Callable[[str], Recording], check: str) -> None:
    """Eager is consistent with itself, and NCCL runs 17 all-reduces a step there too; everything else fails."""
    passing = check in ("slow_path", "count", "family", "consistent")
    findings = CHECKS[check](recording("eager"))
    assert outcomes(findings) == {Outcome.PASSED if passing else Outcome.FAILED}
    assert passing or all(finding.cause for finding in findings)


@pytest.mark.parametrize(
    ("name", "mode"),
    [("gguf-full", Outcome.PASSED), ("gguf-piecewise", Outcome.PASSED), ("gguf-eager", Outcome.FAILED)],
)
def test_one_gpu_shows_the_mode_and_leaves_collectives_open(
    recording: Callable[[str], Recording], name: str, mode: Outcome
) -> None:
    """Nothing is proven of all-reduces that do not run."""
    for check in ("enabled", "mode"):
        assert outcomes(CHECKS[check](recording(name))) == {mode}
    for check in ("in_graph", "count", "family"):
        assert outcomes(CHECKS[check](recording(name))) == {Outcome.INCONCLUSIVE}
    assert outcomes(CHECKS["consistent"](recording(name))) == {Outcome.PASSED}


@pytest.mark.parametrize("name", ["gguf-tp2-full", "gguf-tp2-piecewise"])
@pytest.mark.parametrize("check", CHECKS)
def test_two_gpus_with_gguf_weights(recording: Callable[[str], Recording], name: str, check: str) -> None:
    assert outcomes(CHECKS[check](recording(name))) == {Outcome.PASSED}


def test_two_gpus_without_graphs(recording: Callable[[str], Recording]) -> None:
    for check in ("in_graph", "mode", "enabled"):
        assert outcomes(CHECKS[check](recording("gguf-tp2-eager"))) == {Outcome.FAILED}


def test_piecewise_is_a_result_of_its_own(recording: Callable[[str], Recording]) -> None:
    """Its all-reduces are in graphs; whether its mode is right depends on what was requested."""
    mode = graphs.every_step_ran_in_the_expected_mode(recording("piecewise"))
    assert "PIECEWISE in 18 steps" in mode[0].got
    inside = graphs.all_reduces_are_in_graphs(recording("piecewise"))
    assert "9 graph launches a step" in inside[0].got


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ["full", "eager"])
def test_without_evidence_nothing_passes(recording: Callable[[str], Recording], name: str, check: str) -> None:
    empty = Recording(source="nothing")
    assert outcomes(CHECKS[check](empty)) == {Outcome.INCONCLUSIVE}
    one_rank = replace(recording(name), ranks=recording(name).ranks[:1], nccl=())
    needs_ranks = check not in ("enabled", "slow_path", "consistent")
    assert not needs_ranks or Outcome.PASSED not in outcomes(CHECKS[check](one_rank))


def test_two_of_eight_ranks(recording: Callable[[str], Recording]) -> None:
    """Two ranks' traces of eight: the reason names the missing ones."""
    ranks = tuple(replace(trace, world_size=8) for trace in recording("full").ranks)
    findings = graphs.all_reduces_are_in_graphs(replace(recording("full"), ranks=ranks))
    assert outcomes(findings) == {Outcome.INCONCLUSIVE}
    assert "2 of 8 ranks, missing 2, 3, 4, 5, 6, 7" in findings[0].got


def test_unknown_number_of_ranks(recording: Callable[[str], Recording]) -> None:
    ranks = tuple(replace(trace, world_size=None) for trace in recording("full").ranks)
    bare = Recording(source="traces only", ranks=ranks)
    assert "not known how many ranks" in graphs.all_reduces_are_in_graphs(bare)[0].got
    told = replace(bare, expected_ranks=2)
    assert outcomes(graphs.all_reduces_are_in_graphs(told)) == {Outcome.PASSED}


def test_a_foreign_trace(recording: Callable[[str], Recording]) -> None:
    """A training trace has collectives but no decode step, so it proves nothing."""
    ranks = tuple(replace(trace, steps=(), steady=()) for trace in recording("full").ranks)
    for check in ("mode", "in_graph", "count", "family"):
        findings = CHECKS[check](replace(recording("full"), ranks=ranks))
        assert outcomes(findings) == {Outcome.INCONCLUSIVE}
        assert "no vLLM decode step is marked" in findings[0].got


def test_a_short_profile(recording: Callable[[str], Recording]) -> None:
    ranks = tuple(replace(trace, steady=trace.steady[:3]) for trace in recording("full").ranks)
    findings = graphs.all_reduces_are_in_graphs(replace(recording("full"), ranks=ranks))
    assert "only 3 steady decode steps" in findings[0].got


def test_ranks_of_different_profiles(recording: Callable[[str], Recording]) -> None:
    first, second = recording("full").ranks
    ranks = (first, replace(second, steady=second.steady[:-1]))
    findings = graphs.all_reduces_are_in_graphs(replace(recording("full"), ranks=ranks))
    assert "not of one profile" in findings[0].got


def test_a_single_rank_server_has_no_all_reduce(recording: Callable[[str], Recording]) -> None:
    trace = recording("full").ranks[0]
    steady = tuple(replace(step, collectives=()) for step in trace.steady)
    alone = replace(
        recording("full"), ranks=(replace(trace, world_size=1, steady=steady, steps=steady),), expected_ranks=1
    )
    for check in ("in_graph", "count", "family"):
        findings = CHECKS[check](alone)
        assert outcomes(findings) == {Outcome.INCONCLUSIVE}
        assert "one rank alone" in findings[0].got
    assert outcomes(CHECKS["mode"](alone)) == {Outcome.PASSED}


def test_silence_without_steps_is_no_evidence(recording: Callable[[str], Recording]) -> None:
    log = replace(recording("full").nccl[0], all_gathers=0)
    findings = graphs.nccl_was_silent(replace(recording("full"), nccl=(log,)), steps=NCCL_QUIET_STEPS)
    assert outcomes(findings) == {Outcome.INCONCLUSIVE}
    assert "too few all-gathers" in findings[0].got


@pytest.mark.parametrize("name", ["full", "eager"])
def test_a_trace_without_kernels(recording: Callable[[str], Recording], name: str) -> None:
    """A server on a CPU, or a profiler without the GPU's records: steps, but nothing that was launched."""
    ranks = tuple(
        replace(
            trace,
            kernels=0,
            steady=tuple(replace(step, mode=GraphMode.UNKNOWN, collectives=(), kernels=0) for step in trace.steady),
        )
        for trace in recording(name).ranks
    )
    for check in ("mode", "in_graph", "count", "family"):
        findings = CHECKS[check](replace(recording(name), ranks=ranks))
        assert outcomes(findings) == {Outcome.INCONCLUSIVE}
    assert "without a GPU kernel" in CHECKS["mode"](replace(recording(name), ranks=ranks))[0].got
