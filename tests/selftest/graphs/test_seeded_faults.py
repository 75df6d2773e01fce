"""Each fault that a deployment could have, seeded into a healthy recording, fails the check of its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from glm5check.checks import graphs
from glm5check.checks.contradictions import nothing_contradicts
from glm5check.evidence import Recording
from glm5check.records import Finding, Outcome
from glm5check.trace.families import collective_of
from glm5check.trace.profile import Kernel, Launch, Profile
from glm5check.trace.server_log import server_facts

EXPECTED = 17
Seed = Callable[..., Recording]


def is_all_reduce(kernel: Kernel) -> bool:
    found = collective_of(kernel.name)
    return found is not None and found[1] == "all-reduce"


def first_of_each_launch(profile: Profile) -> list[Kernel]:
    """One all-reduce of every graph launch: in FULL mode one a decode step."""
    return list({kernel.correlation: kernel for kernel in profile.kernels if is_all_reduce(kernel)}.values())


def launched_eagerly(profile: Profile, kernels: list[Kernel]) -> Profile:
    """The same kernels, each launched by a call of its own at the time of its graph's launch."""
    chosen = {id(kernel): number for number, kernel in enumerate(kernels, start=10**6)}
    times = {launch.correlation: launch.start_us for launch in profile.launches}
    own = [Launch(times[kernel.correlation], chosen[id(kernel)], False) for kernel in kernels]
    moved = [
        msgspec.structs.replace(kernel, correlation=chosen[id(kernel)]) if id(kernel) in chosen else kernel
        for kernel in profile.kernels
    ]
    return replace(profile, kernels=moved, launches=[*profile.launches, *own])


def failures(findings: list[Finding], check: str) -> list[Finding]:
    """The failed findings; there must be some, all of this check, each with a cause."""
    failed = [finding for finding in findings if finding.outcome is Outcome.FAILED]
    assert failed
    assert {finding.check for finding in failed} == {check}
    assert all(finding.cause for finding in failed)
    return failed


def test_all_reduces_eager(with_fault: Seed) -> None:
    faulty = with_fault("full", lambda whole: launched_eagerly(whole, [k for k in whole.kernels if is_all_reduce(k)]))
    failed = failures(graphs.all_reduces_are_in_graphs(faulty), "graphs.in_graph")
    assert [finding.where["rank"] for finding in failed] == ["0", "1"]
    assert "153 of 153 all-reduces outside of graphs, in 9 of 9 steps" in failed[0].got


@pytest.mark.parametrize("rank", [0, 1])
def test_one_all_reduce_a_step_outside(with_fault: Seed, rank: int) -> None:
    faulty = with_fault("full", lambda whole: launched_eagerly(whole, first_of_each_launch(whole)), ranks=(rank,))
    (failed,) = failures(graphs.all_reduces_are_in_graphs(faulty), "graphs.in_graph")
    assert failed.where == {"rank": str(rank)}
    assert "9 of 153 all-reduces outside of graphs" in failed.got
    assert "not captured" in failed.cause


def test_one_too_few(with_fault: Seed) -> None:
    def drop(whole: Profile) -> Profile:
        gone = {id(kernel) for kernel in first_of_each_launch(whole)}
        return replace(whole, kernels=[kernel for kernel in whole.kernels if id(kernel) not in gone])

    (failed,) = failures(
        graphs.all_reduces_are_complete(with_fault("full", drop, ranks=(1,)), EXPECTED), "graphs.count"
    )
    assert "16 in 9 steps of 9" in failed.got
    assert failed.where == {"rank": "1"}


def test_one_too_many(with_fault: Seed) -> None:
    def double(whole: Profile) -> Profile:
        return replace(whole, kernels=[*whole.kernels, *first_of_each_launch(whole)])

    (failed,) = failures(
        graphs.all_reduces_are_complete(with_fault("full", double, ranks=(0,)), EXPECTED), "graphs.count"
    )
    assert "18 in 9 steps of 9" in failed.got
    assert "ncclDevKernel_AllReduce" in failed.got


def test_another_number_of_layers(recording: Callable[[str], Recording]) -> None:
    failed = failures(graphs.all_reduces_are_complete(recording("full"), 157), "graphs.count")
    assert "exactly 157" in failed[0].want


def test_profile_from_another_configuration(recording: Callable[[str], Recording]) -> None:
    """The historical mistake: an eager profile explained a benchmark that ran in graphs."""
    benchmark = {"command.enforce_eager": "False", "process.start": "100.0", "version.vllm": "0.24.0"}
    profile = {**benchmark, "command.enforce_eager": "True", "process.start": "50.0"}
    (failed,) = failures(graphs.same_run(profile, benchmark), "graphs.fingerprint")
    assert "command.enforce_eager: profile 'True', measured 'False'" in failed.got
    mixed = replace(recording("full"), ranks=recording("eager").ranks)
    findings = nothing_contradicts(mixed)
    told = " ".join(finding.got for finding in findings if finding.outcome is Outcome.FAILED)
    assert "CUDAGraph table in server.log.gz says FULL for 1 tokens, but rank0.pt.trace.json.gz shows NONE" in told
    assert "counts 0 all-reduce calls a step, but rank0.pt.trace.json.gz shows 17 eager NCCL all-reduces a step" in told


def test_a_fingerprint_that_lacks_a_fact(recording: Callable[[str], Recording]) -> None:
    findings = graphs.same_run({"a": "1"}, {"a": "1", "b": "2"})
    assert "b: profile None, measured '2'" in failures(findings, "graphs.fingerprint")[0].got
    assert graphs.same_run({}, {"a": "1"})[0].outcome is Outcome.INCONCLUSIVE
    assert graphs.same_run({"a": "1"}, {"a": "1"})[0].outcome is Outcome.PASSED


def test_silently_eager_above_the_largest_captured_batch(recording: Callable[[str], Recording]) -> None:
    """24 requests a step where 16 was the largest captured size: vLLM runs it eagerly and logs nothing."""
    ranks = tuple(
        replace(trace, steady=tuple(replace(step, decode_tokens=24, decode_requests=24) for step in trace.steady))
        for trace in recording("eager").ranks
    )
    faulty = replace(recording("full"), ranks=ranks)
    failed = failures(graphs.every_step_ran_in_the_expected_mode(faulty), "graphs.mode")
    assert "a batch of 24 tokens is above the largest captured size 16" in failed[0].cause
    assert failures(graphs.all_reduces_are_in_graphs(faulty), "graphs.in_graph")


def test_a_single_eager_step_among_graphs(recording: Callable[[str], Recording]) -> None:
    full, eager = recording("full").ranks, recording("eager").ranks
    ranks = tuple(
        replace(one, steady=(*one.steady[:4], other.steady[4], *one.steady[5:]))
        for one, other in zip(full, eager, strict=True)
    )
    failed = failures(
        graphs.every_step_ran_in_the_expected_mode(replace(recording("full"), ranks=ranks)), "graphs.mode"
    )
    assert "8 steps FULL, 1 steps NONE" in failed[0].got


def test_piecewise_downgrade(recording: Callable[[str], Recording]) -> None:
    line = (
        "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with TritonMLABackend backend (support: "
        "AttentionCGSupport.NEVER); setting cudagraph_mode=PIECEWISE because attention is compiled piecewise"
    )
    facts = recording("full").facts
    assert facts is not None
    logged = replace(facts, downgrades=server_facts([line]).downgrades, captured={"PIECEWISE": 5}, dispatches=())
    faulty = replace(recording("piecewise"), facts=logged)
    enabled = failures(graphs.graphs_are_on(faulty), "graphs.enabled")
    assert "downgraded" in enabled[0].cause
    assert line in enabled[0].got
    assert line in failures(graphs.every_step_ran_in_the_expected_mode(faulty), "graphs.mode")[0].cause
    silent = replace(faulty, facts=replace(logged, downgrades=()))
    mode = failures(graphs.every_step_ran_in_the_expected_mode(silent), "graphs.mode")
    assert "fell back to PIECEWISE" in mode[0].cause
    assert graphs.all_reduces_are_in_graphs(faulty)[0].outcome is Outcome.PASSED


def test_a_slow_path_in_the_log(recording: Callable[[str], Recording]) -> None:
    facts = recording("full").facts
    assert facts is not None
    line = "There is no support for fast MoE kernel for current quantization method. Falling back to slow"
    faulty = replace(recording("full"), facts=replace(facts, slow_paths=server_facts([line]).slow_paths))
    (failed,) = failures(graphs.no_slow_path(faulty), "graphs.slow_path")
    assert failed.got == line


@pytest.mark.parametrize(("log", "ran"), [("customar", "full"), ("full", "customar")])
def test_wrong_family(recording: Callable[[str], Recording], log: str, ran: str) -> None:
    faulty = replace(recording(log), ranks=recording(ran).ranks)
    (failed,) = failures(graphs.the_chosen_family_ran(faulty), "graphs.family")
    assert "did not take the message" in failed.cause


def test_all_reduces_that_nccl_logs_during_decode(recording: Callable[[str], Recording]) -> None:
    faulty = replace(recording("full"), nccl=recording("eager").nccl)
    (failed,) = failures(graphs.nccl_was_silent(faulty, steps=64), "graphs.nccl_silent")
    assert "17 all-reduces a step" in failed.cause
    assert nothing_contradicts(faulty)[0].outcome is Outcome.FAILED


@pytest.mark.parametrize("eager_node", [0, 5])
def test_graph_node_ids_that_disagree_with_launches(with_fault: Seed, eager_node: int) -> None:
    """Where the profiler writes node ids, they are a second column: 0 for a kernel that a graph launched is a lie."""

    def mark(whole: Profile) -> Profile:
        graph = {launch.correlation for launch in whole.launches if launch.is_graph}
        marked = [
            msgspec.structs.replace(kernel, graph_node=7 if kernel.correlation in graph else 0)
            for kernel in whole.kernels
        ]
        if eager_node == 0:
            victim = next(
                index for index, kernel in enumerate(marked) if is_all_reduce(kernel) and kernel.start_us > middle
            )
            marked[victim] = msgspec.structs.replace(marked[victim], graph_node=0)
        return replace(whole, kernels=marked)

    middle = with_fault("full", lambda whole: whole).ranks[0].steady[4].collectives[0].start_us
    findings = graphs.all_reduces_are_in_graphs(with_fault("full", mark, ranks=(0,)))
    if eager_node:
        assert findings[0].outcome is Outcome.PASSED
    else:
        assert "contradicts itself" in failures(findings, "graphs.in_graph")[0].cause


def test_lost_launch_events(with_fault: Seed) -> None:
    """A launch that the profiler lost leaves its kernels without a parent: no verdict, and no false count."""

    def lose(whole: Profile) -> Profile:
        graphs_launched = [launch for launch in whole.launches if launch.is_graph]
        lost = graphs_launched[-6].correlation
        return replace(whole, launches=[launch for launch in whole.launches if launch.correlation != lost])

    faulty = with_fault("full", lose, ranks=(1,))
    for findings in (graphs.all_reduces_are_in_graphs(faulty), graphs.all_reduces_are_complete(faulty, EXPECTED)):
        assert {finding.outcome for finding in findings} == {Outcome.INCONCLUSIVE}
        assert "no launch event" in findings[0].got


def test_reordered_times(with_fault: Seed) -> None:
    """Kernels that start before the call that launched them: somebody edited or mixed the file."""

    def swap(whole: Profile) -> Profile:
        starts = sorted(launch.start_us for launch in whole.launches)
        backwards = dict(zip(starts, reversed(starts), strict=True))
        return replace(
            whole,
            launches=[
                msgspec.structs.replace(launch, start_us=backwards[launch.start_us]) for launch in whole.launches
            ],
        )

    findings = graphs.all_reduces_are_in_graphs(with_fault("full", swap))
    assert {finding.outcome for finding in findings} == {Outcome.INCONCLUSIVE}
    assert "before the call that launched them" in findings[0].got


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"requested_mode": "PIECEWISE"},
            "says cudagraph_mode=PIECEWISE, but server_info.json.gz says cudagraph_mode=FULL",
        ),
        ({"enforce_eager": True}, "enforce_eager=True, but server_info.json.gz says enforce_eager=False"),
        ({"tensor_parallel": 8}, "tensor_parallel_size=8"),
        ({"version": "0.25.1"}, "vLLM 0.25.1"),
        ({"nccl_version": "2.27.5"}, "NCCL 2.27.5"),
        ({"all_reduce_backends": ("CUSTOM",)}, "disable_custom_all_reduce=True"),
        ({"captured": {"PIECEWISE": 5}}, "captured for PIECEWISE, but rank0.pt.trace.json.gz shows steps in mode FULL"),
        ({"graphs_off": ("Skipping CUDA graph capture",)}, "Skipping CUDA graph capture"),
    ],
)
def test_contradictions_name_both_statements(
    recording: Callable[[str], Recording], change: dict[str, object], told: str
) -> None:
    facts = recording("full").facts
    assert facts is not None
    findings = nothing_contradicts(replace(recording("full"), facts=replace(facts, **change)))
    assert {finding.outcome for finding in findings} == {Outcome.FAILED}
    assert any(told in finding.got for finding in findings)
    assert all(", but " in finding.got for finding in findings)
