"""What the graph checks say, case by case; the approved words are in findings.txt."""

from dataclasses import replace

import pytest

from glm5check.checks import graphs
from glm5check.checks.completeness import incomplete
from glm5check.checks.contradictions import nothing_contradicts
from glm5check.evidence import Dispatch, Family, Recording
from glm5check.tolerances import MIN_STEADY_STEPS
from tests.selftest.approved import approved, told
from tests.selftest.graphs.records import (
    EAGER,
    FACTS,
    FULL,
    GATHER,
    INFO,
    NONE,
    PIECEWISE,
    QUIET,
    TORN,
    UNKNOWN,
    kernel,
    rank,
    recording,
    step,
)

NO_RECORD = Recording(source="nothing")
HEALTHY = recording()
EAGERLY = step(*[kernel(EAGER)] * 3, GATHER, mode=NONE, launches=0)
PARTLY = step(kernel(), kernel(EAGER), kernel(), GATHER, mode=PIECEWISE, launches=4)
PIECES = step(mode=PIECEWISE, launches=4)
ALONE = step(GATHER)


def facts(**changes):
    return replace(FACTS, **changes)


def of(check, *ranks, log=None, **more):
    """The findings of a check about ranks, with the healthy log unless another is given."""
    return lambda: check(recording(*ranks, facts=log or FACTS, **more))


def enabled(**changes):
    return lambda: graphs.graphs_are_on(replace(HEALTHY, facts=facts(**changes)))


def both(one, count=8):
    return rank(0, *[one] * count), rank(1, *[one] * count)


def counted(expected, *ranks, **more):
    return lambda: graphs.all_reduces_are_complete(recording(*ranks, **more), expected)


def silent(*logs, ranks=()):
    return lambda: graphs.nccl_was_silent(recording(*ranks, nccl=logs), steps=64)


IN_MODE, IN_GRAPHS, FAMILY = (
    graphs.every_step_ran_in_the_expected_mode,
    graphs.all_reduces_are_in_graphs,
    graphs.the_chosen_family_ran,
)
LARGE = step(*[kernel(EAGER)] * 3, mode=NONE, tokens=8, requests=8)
LARGER = replace(LARGE, decode_tokens=9)
CUSTOM = step(*[kernel(family=Family.VLLM_CUSTOM)] * 3)
FUSED = step(*[kernel(family=Family.FLASHINFER_FUSED)] * 3)
TWELVE = {f"key{i:02}": "x" for i in range(12)}

WHETHER = {
    "graphs are on": enabled(),
    "graphs are on by plan": enabled(captured={}, capture_finished=False, planned={"FULL": 3, "PIECEWISE": 4}),
    "graphs are on and not counted": enabled(captured={}, planned={}),
    "graphs are on and counted as none": enabled(captured={"FULL": 0}, planned={"FULL": 2}),
    "there is no server log": lambda: graphs.graphs_are_on(NO_RECORD),
    "the log has no line about graphs": enabled(captured={}, capture_finished=False),
    "the server was told to be eager": enabled(enforce_eager=True),
    "the mode is NONE": enabled(requested_mode="NONE"),
    "the log says that graphs are off": enabled(graphs_off=("Skipping capture",), enforce_eager=True),
    "the log says that the mode was lowered": enabled(graphs_off=("off",), downgrades=("lowered", "again")),
    "the log names no slow path": lambda: graphs.no_slow_path(HEALTHY),
    "the log names two slow paths": lambda: graphs.no_slow_path(
        replace(HEALTHY, facts=facts(slow_paths=("no fast MoE kernel", "slow implementation")))
    ),
    "slow paths without a log": lambda: graphs.no_slow_path(NO_RECORD),
    "every step is FULL": of(IN_MODE),
    "every step is PIECEWISE where FULL was asked": of(IN_MODE, *both(PIECES)),
    "every step is PIECEWISE as asked": of(IN_MODE, *both(PIECES), log=facts(requested_mode="PIECEWISE")),
    "every step is FULL where PIECEWISE was asked": of(IN_MODE, log=facts(requested_mode="PIECEWISE")),
    "every step is eager where NONE was asked": of(IN_MODE, *both(EAGERLY), log=facts(requested_mode="NONE")),
    "one rank has one eager step": of(IN_MODE, rank(0), rank(1, *[step()] * 7, EAGERLY)),
    "three modes in one rank": of(IN_MODE, rank(0, *[step()] * 6, PIECES, PIECES, EAGERLY), rank(1, *[step()] * 9)),
    "a batch is above the largest captured size": of(IN_MODE, *both(LARGE)),
    "batches are above it and the sizes were changed": of(
        IN_MODE, *[rank(i, *[LARGE] * 4, *[LARGER] * 4) for i in (0, 1)], log=facts(capture_notes=("sizes", "cut"))
    ),
    "a batch is as large as the largest captured size": of(
        IN_MODE, *both(replace(LARGE, decode_tokens=4, decode_requests=4))
    ),
    "the only captured size is one": of(IN_MODE, *both(LARGE), log=facts(capture_sizes=(1,))),
    "no captured size is known": of(IN_MODE, *both(LARGE), log=facts(capture_sizes=())),
    "steps are PIECEWISE and the log says why": of(
        IN_MODE, *both(PIECES), log=facts(downgrades=("lowered",), graphs_off=("off",))
    ),
    "the mode that was asked is not known": lambda: IN_MODE(recording(facts=None)),
    "the mode that was asked is not known and two were run": lambda: IN_MODE(
        recording(rank(0, *[step()] * 7, PIECES), rank(1), facts=None)
    ),
    "the mode is known from the configuration": lambda: IN_MODE(recording(facts=None, info=INFO)),
    "the log goes before the configuration": of(
        IN_MODE, log=facts(requested_mode="PIECEWISE"), info=replace(INFO, requested_mode="FULL")
    ),
    "modes without a trace": lambda: IN_MODE(NO_RECORD),
    "steps without kernels have no mode": of(IN_MODE, *both(step(mode=UNKNOWN))),
    "every all-reduce is in a graph": of(IN_GRAPHS),
    "every all-reduce is in one of many graphs": of(
        IN_GRAPHS, rank(0, *[step(launches=4)] * 7, step(launches=5)), rank(1)
    ),
    "every all-reduce is eager": of(IN_GRAPHS, *both(EAGERLY)),
    "one all-reduce of some steps is eager on one rank": of(IN_GRAPHS, rank(0), rank(1, *[step()] * 5, *[PARTLY] * 3)),
    "launch and graph node disagree": of(
        IN_GRAPHS, rank(0), rank(1, *[step()] * 7, step(kernel(TORN), kernel(TORN), kernel()))
    ),
    "one rank alone has no all-reduce": of(IN_GRAPHS, rank(0, *[ALONE] * 8, ranks=1)),
    "graphs without a trace": lambda: IN_GRAPHS(NO_RECORD),
    "a rank is missing": of(IN_GRAPHS, rank(0)),
}
COUNTS = {
    "every step has its all-reduces": counted(3),
    "two ranks have two too many in some steps": counted(
        3,
        *[
            rank(i, *[step()] * 6, step(*[kernel()] * 5, GATHER, index=9), step(*[kernel()] * 5, GATHER, index=10))
            for i in (0, 1)
        ],
    ),
    "one rank has one too few": counted(3, rank(0), rank(1, *[step(kernel(), kernel(), GATHER)] * 8)),
    "five wrong numbers, too few among them": counted(
        3, rank(0, *[step(*[kernel()] * (n + 4)) for n in range(5)], step(kernel()), step(), step()), rank(1)
    ),
    "six kinds of collectives with long names": counted(
        7, *both(step(*[kernel(name=f"kernel_{c}_" * 8) for c in "abcdef"]))
    ),
    "steps have no collective at all in one rank": counted(3, rank(0), rank(1, *[replace(step(), collectives=())] * 8)),
    "too few where launches were lost": counted(3, rank(0), rank(1, *[step(kernel())] * 8, steady_orphans=2)),
    "the number is not known": counted(None),
    "one rank alone needs none": counted(3, rank(0, *[ALONE] * 8, ranks=1)),
    "no all-reduce and a rank is missing": counted(3, rank(0, *[ALONE] * 8)),
    "drafted tokens": counted(3, *both(step(tokens=3, requests=1))),
    "counts without a trace": lambda: graphs.all_reduces_are_complete(NO_RECORD, 3),
    "the chosen family ran": of(FAMILY),
    "another family ran": of(FAMILY, *both(CUSTOM)),
    "another family ran in some steps, and the log has notes": of(
        FAMILY, rank(0, *[step()] * 6, CUSTOM, CUSTOM), rank(1), log=facts(all_reduce_notes=("custom is", "off"))
    ),
    "a backend that leaves small messages": of(
        FAMILY, *both(CUSTOM), log=facts(all_reduce_backends=("SYMM_MEM", "CUSTOM", "PYNCCL"))
    ),
    "a backend behind the one that takes all": of(FAMILY, log=facts(all_reduce_backends=("CUSTOM", "PYNCCL"))),
    "the fused family where it is fused": of(FAMILY, *both(FUSED), log=facts(fused_all_reduce=True)),
    "the fused family where it is not": of(FAMILY, *both(FUSED)),
    "a backend that is not known": of(
        FAMILY, *both(CUSTOM), log=facts(all_reduce_backends=("SYMM_MEM", "NEW", "PYNCCL"))
    ),
    "a backend that is not known, behind the one that ran": of(
        FAMILY, log=facts(all_reduce_backends=("PYNCCL", "NEW"))
    ),
    "no all-reduce ran for a family": of(FAMILY, rank(0, *[ALONE] * 8, ranks=1)),
    "the log names no backend": of(FAMILY, log=facts(all_reduce_backends=())),
    "families without a log": lambda: FAMILY(recording(facts=None)),
    "families of too few ranks": of(FAMILY, rank(0)),
    "NCCL was silent": silent(QUIET),
    "NCCL was silent as another library reduces": silent(
        QUIET, ranks=both(step(kernel(family=Family.VLLM_CUSTOM), kernel(family=Family.FLASHINFER), kernel()))
    ),
    "NCCL was silent as its symmetric kernels are its own": silent(
        QUIET, ranks=both(step(*[kernel(family=Family.NCCL_SYMMETRIC)] * 3))
    ),
    "NCCL named three all-reduces a step": silent(QUIET, replace(QUIET, rank=None, all_reduces=192)),
    "NCCL named one all-reduce": silent(replace(QUIET, all_reduces=1)),
    "NCCL was heard over too few steps": silent(replace(QUIET, all_gathers=63, all_reduces=5), replace(QUIET, rank=1)),
    "there is no NCCL log": silent(),
    "one fingerprint": lambda: graphs.same_run({"a": "1", "b": "2"}, {"a": "1", "b": "2"}),
    "two fingerprints": lambda: graphs.same_run({"a": "1", "c": "3"}, {"a": "2", "b": "2", "c": "3"}),
    "eight facts differ": lambda: graphs.same_run(dict(list(TWELVE.items())[:8]), {"key00": "y"}),
    "twelve facts differ": lambda: graphs.same_run(TWELVE, {"key00": "y"}),
    "the profile has no fingerprint": lambda: graphs.same_run({}, {"a": "1"}),
    "the measurement has no fingerprint": lambda: graphs.same_run({"a": "1"}, {}),
}


def consistent(*ranks, log=None, **more):
    return lambda: nothing_contradicts(recording(*ranks, facts=log or FACTS, **more))


TABLE = (Dispatch(1, 1, FULL, 8), Dispatch(2, 2, PIECEWISE, 8), Dispatch(2, 2, NONE, 1))
LOUD = replace(QUIET, all_reduces=192)
STORIES = {
    "all records agree": consistent(info=INFO, nccl=(QUIET,)),
    "log and configuration differ in everything": consistent(
        info=replace(INFO, requested_mode="NONE", enforce_eager=True, tensor_parallel=8, version="0.25.1")
    ),
    "the configuration says little": consistent(
        info=replace(
            INFO, requested_mode=None, enforce_eager=None, tensor_parallel=None, custom_all_reduce_off=None, version=""
        )
    ),
    "the log says little": consistent(
        info=INFO,
        log=facts(requested_mode=None, enforce_eager=None, tensor_parallel=None, all_reduce_backends=(), version=""),
    ),
    "custom all-reduce is off and chosen": consistent(
        info=replace(INFO, custom_all_reduce_off=True), log=facts(all_reduce_backends=("CUSTOM", "PYNCCL"))
    ),
    "custom all-reduce is on and not chosen": consistent(info=replace(INFO, custom_all_reduce_off=False)),
    "custom all-reduce is off and not chosen": consistent(info=replace(INFO, custom_all_reduce_off=True)),
    "a rank has other versions": consistent(rank(0), rank(1, vllm_version="0.25.1", nccl_version="2.27.5")),
    "versions are known to one record only": consistent(
        rank(0, vllm_version="", nccl_version=""), rank(1, vllm_version="", nccl_version=""), log=facts(captured={})
    ),
    "a table that says FULL": consistent(log=facts(dispatches=TABLE)),
    "a table that says otherwise for two tokens": consistent(
        *both(step(tokens=2, requests=2)), log=facts(dispatches=TABLE, captured={})
    ),
    "a table that allows one of two modes": consistent(
        *both(replace(PIECES, decode_tokens=2)), log=facts(dispatches=TABLE, captured={})
    ),
    "a table that does not have three tokens": consistent(
        *both(step(tokens=3)), log=facts(dispatches=TABLE, captured={})
    ),
    "two sizes in one trace": consistent(
        rank(0, *[step()] * 4, *[step(tokens=2)] * 4), rank(1), log=facts(dispatches=TABLE, captured={})
    ),
    "steps without kernels beside a table": consistent(
        *both(step(mode=UNKNOWN)), log=facts(dispatches=TABLE, captured={})
    ),
    "graphs are off and steps are eager": consistent(*both(EAGERLY), log=facts(graphs_off=("off " * 40,))),
    "graphs are off and steps are FULL": consistent(log=facts(graphs_off=("off " * 40, "more"))),
    "graphs are off and steps are PIECEWISE and eager": consistent(
        rank(0, *[PIECES] * 4, *[EAGERLY] * 4), rank(1), log=facts(graphs_off=("off",))
    ),
    "FULL graphs were not captured": consistent(log=facts(captured={"PIECEWISE": 5, "OTHER": 1})),
    "steps are eager though graphs were captured": consistent(*both(EAGERLY)),
    "PIECEWISE graphs were captured and ran": consistent(*both(PIECES), log=facts(captured={"PIECEWISE": 5})),
    "NCCL names what the trace has in graphs": consistent(nccl=(LOUD,)),
    "NCCL is silent where the trace is eager": consistent(*both(EAGERLY), nccl=(QUIET,), log=facts(captured={})),
    "NCCL names what the trace has eagerly": consistent(*both(EAGERLY), nccl=(LOUD,), log=facts(captured={})),
    "eager all-reduces of another library": consistent(
        *both(step(*[kernel(EAGER, Family.VLLM_CUSTOM)] * 3, mode=NONE)), nccl=(QUIET,), log=facts(captured={})
    ),
    "some all-reduces are eager": consistent(
        rank(0, *[step()] * 6, PARTLY, PARTLY), rank(1), nccl=(QUIET, replace(QUIET, rank=1))
    ),
    "a log of a rank without a trace": consistent(
        *both(EAGERLY), nccl=(replace(QUIET, rank=5),), log=facts(captured={})
    ),
    "NCCL names one all-reduce a step that the trace has in graphs": consistent(nccl=(replace(QUIET, all_reduces=64),)),
    "NCCL is silent about one all-reduce in all steps": consistent(
        rank(0, *[step()] * 7, PARTLY), rank(1), nccl=(QUIET,), log=facts(captured={})
    ),
    "there is no log but traces of two versions": lambda: nothing_contradicts(
        recording(rank(0), rank(1, vllm_version="0.25.1"), facts=None)
    ),
    "an NCCL log without all-gathers": consistent(nccl=(replace(LOUD, all_gathers=0),)),
    "an NCCL log without a trace": lambda: nothing_contradicts(Recording(source="here", nccl=(QUIET,))),
    "the first rank has no steady step": consistent(
        rank(0, steady=()), rank(1, *[EAGERLY] * 8), nccl=(QUIET,), log=facts(captured={})
    ),
    "there are no records": lambda: nothing_contradicts(NO_RECORD),
}
CASES = WHETHER | COUNTS | STORIES


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]


INCOMPLETE = [
    ("there is no profiler trace", NO_RECORD),
    ("traces of 1 of 2 ranks, missing 1", recording(rank(0))),
    (
        "traces of 2 of 16 ranks, missing 1, 2, 3, 4, 5, 6, 7, 8 and 6 more",
        recording(rank(0, ranks=16), rank(9, ranks=16)),
    ),
    ("traces of 2 of 10 ranks, missing 1, 2, 3, 4, 5, 6, 7, 8", recording(rank(0, ranks=10), rank(9, ranks=10))),
    (
        "it is not known how many ranks there were (they say [2, 4]); give their number (--ranks)",
        recording(rank(0), rank(1, ranks=4)),
    ),
    (
        "it is not known how many ranks there were (neither they nor a log say it); give their number (--ranks)",
        recording(rank(0, ranks=None), facts=None),
    ),
    ("traces of 1 of 2 ranks, missing 1", recording(rank(0, ranks=None))),
    ("traces of 1 of 2 ranks, missing 1", recording(rank(0, ranks=None), facts=None, info=INFO)),
    (
        "traces of 1 of 3 ranks, missing 1, 2",
        recording(rank(0, ranks=None), facts=replace(FACTS, tensor_parallel=3), info=INFO),
    ),
    ("traces of 2 of 3 ranks, missing 2", recording(rank(0), rank(1, ranks=4), expected_ranks=3)),
    ("rank 3 cannot be one of 2 ranks", recording(rank(0), rank(1), rank(4), rank(3))),
    (
        "rank 1: no vLLM decode step is marked in rank1.json (no `execute_context_...` annotation)",
        recording(rank(0), rank(1, steps=())),
    ),
    (
        "rank 0: rank0.json has steps without a GPU kernel: the server ran on a CPU, or the profiler saw no GPU",
        recording(rank(0, *[step()] * 7, step(mode=UNKNOWN)), rank(1)),
    ),
    (
        "rank 1: only 7 steady decode steps, 8 needed; profile 10 to 30 decode steps of one long request",
        recording(rank(0), rank(1, *[step()] * 7)),
    ),
    (
        "rank 0: 3 kernels start before the call that launched them: the times were reordered",
        recording(rank(0, early_kernels=3), rank(1)),
    ),
    ("rank 1: 2 collectives of steady steps have no launch event", recording(rank(0), rank(1, steady_orphans=2))),
    (
        "the ranks' traces are not of one profile: steady decode steps rank 0 8, rank 1 9",
        recording(rank(0), rank(1, *[step()] * 9)),
    ),
    ("", recording()),
    ("", recording(rank(0, ranks=None), rank(1, ranks=None))),
    ("", recording(rank(0, ranks=8), rank(1, ranks=8), expected_ranks=2)),
]


@pytest.mark.parametrize(("reason", "recorded"), INCOMPLETE)
def test_why_profiles_cannot_prove_anything(reason, recorded):
    assert MIN_STEADY_STEPS == 8
    assert incomplete(recorded) == reason
