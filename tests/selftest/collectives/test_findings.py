"""What the checks of collectives say, case by case; the approved words are in findings.txt."""

from dataclasses import replace

import pytest

from glm5check import tolerances
from glm5check.checks import collectives
from glm5check.collectives.results import Combination, CombinationResult, Latency, Mode, Preflight, Status, Topology
from glm5check.evidence import Family, NcclChoice, Recording
from glm5check.tolerances import SMALL_MESSAGE_BYTES
from tests.selftest.approved import approved, told
from tests.selftest.graphs.records import GATHER, QUIET, kernel, rank, recording, step

MESSAGE = 12_288
NO_RECORD = Recording(source="nothing")
LL, SIMPLE = NcclChoice("AllReduce", MESSAGE, "Ring", "LL"), NcclChoice("AllReduce", MESSAGE, "RING", "Simple")
OTHERS = (NcclChoice("AllGather", MESSAGE, "Ring", "Simple"), NcclChoice("AllReduce", 1, "Ring", "Simple"))


def heard(*choices, ranks=(), **more):
    return recording(*ranks, nccl=(replace(QUIET, choices=OTHERS), replace(QUIET, choices=choices)), **more)


def result(name, net_us, status=Status.RIGHT, size=MESSAGE, mode=Mode.REPLAY):
    rows = (Latency(size_bytes=size, mode=mode, median_us=99.0, p99_us=99.0, net_us=net_us),)
    return CombinationResult(combination=Combination(*name.split("_")), status=status, latencies=rows)


def preflight(*results, device="cuda"):
    return Preflight(ranks=2, nodes=1, device=device, versions={}, topology=Topology(), results=results)


def protocol(found, alone=None, size=MESSAGE):
    return lambda: collectives.the_protocol_suits_the_message(found, size, alone)


def latency(found, alone):
    return lambda: collectives.all_reduces_are_as_fast_as_alone(found, MESSAGE, alone)


def both(*steps):
    return [rank(i, *steps * (8 // len(steps))) for i in (0, 1)]


def lasting(*times):
    """Two ranks whose three all-reduces a step take `times`; on the second rank 2 us more."""
    return [rank(i, *[step(*[kernel(us=us + 2 * i) for us in times], GATHER)] * 8) for i in (0, 1)]


CUSTOM = step(*[kernel(family=Family.VLLM_CUSTOM)] * 3)
SYMMETRIC = step(*[kernel(family=Family.NCCL_SYMMETRIC)] * 3)
MIXED = step(kernel(family=Family.VLLM_CUSTOM), kernel(), kernel())
QUICK = step(*[kernel(family=Family.QUICK_REDUCE)] * 3)
FAST = preflight(
    result("PYNCCL_Tree_LL", 6.0),
    result("CUSTOM", 3.0, Status.WRONG),
    result("PYNCCL", 5.0),
    result("SYMM_MEM", 1.0, size=MESSAGE - 1),
    result("FLASHINFER", 2.0, mode=Mode.EAGER),
)
PYNCCL = preflight(result("PYNCCL", 8.0), result("PYNCCL_Ring_Simple", 28.0), result("CUSTOM", 4.0))

WIRE = {
    "the protocol is LL": protocol(heard(LL)),
    "the protocol is LL on every rank": protocol(heard(LL, LL, replace(LL, algorithm="Tree"))),
    "the protocol is Simple": protocol(heard(SIMPLE)),
    "the protocol is LL and Simple": protocol(heard(LL, SIMPLE)),
    "a message is as large as a small one": protocol(
        heard(replace(SIMPLE, size_bytes=SMALL_MESSAGE_BYTES)), size=SMALL_MESSAGE_BYTES
    ),
    "a message is larger than a small one": protocol(
        heard(replace(SIMPLE, size_bytes=SMALL_MESSAGE_BYTES + 1)), size=SMALL_MESSAGE_BYTES + 1
    ),
    "the protocol is LL and the pre-flight knows better": protocol(heard(LL), FAST),
    "the pre-flight has nothing right": protocol(heard(LL), preflight(result("CUSTOM", 3.0, Status.HUNG))),
    "another library reduces": protocol(heard(SIMPLE, ranks=both(CUSTOM))),
    "two other libraries reduce": protocol(heard(SIMPLE, ranks=both(CUSTOM, SYMMETRIC))),
    "NCCL reduces beside another": protocol(heard(SIMPLE, ranks=both(MIXED))),
    "there is no line about that size": protocol(heard()),
    "there is neither line nor trace": protocol(NO_RECORD),
    "all-reduces are as fast as alone": latency(heard(LL), PYNCCL),
    "all-reduces are as fast as Simple alone": latency(heard(SIMPLE, ranks=lasting(28.0, 29.0, 27.0)), PYNCCL),
    "all-reduces are slower than alone": latency(recording(*lasting(28.0, 29.0, 27.0)), PYNCCL),
    "all-reduces are as slow as allowed": latency(
        recording(*lasting(*[8.0 * tolerances.NET_OVER_PREFLIGHT] * 3)), PYNCCL
    ),
    "the custom all-reduce is compared with itself": latency(recording(*both(CUSTOM)), PYNCCL),
    "two backends are compared with the faster": latency(recording(*both(MIXED)), PYNCCL),
    "a forced protocol is not what ran": latency(heard(LL), preflight(result("PYNCCL_Ring_Simple", 28.0))),
    "a backend that the pre-flight does not know": latency(recording(*both(QUICK)), PYNCCL),
    "the pre-flight's result is wrong": latency(heard(LL), preflight(result("PYNCCL", 8.0, Status.WRONG))),
    "the pre-flight measured smaller messages only": latency(heard(LL), preflight(result("PYNCCL", 8.0, size=1))),
    "a wrong result before a right one": latency(
        heard(LL), preflight(result("PYNCCL_Ring_LL", 8.0, Status.WRONG), result("PYNCCL", 9.0))
    ),
    "the pre-flight was a rehearsal": latency(heard(LL), preflight(result("PYNCCL", 8.0), device="cpu")),
    "there was no pre-flight": latency(recording(*lasting(9.0, 10.0, 11.0)), None),
    "one rank has no skew": latency(recording(rank(0, ranks=1)), PYNCCL),
    "a rank is missing from the trace": latency(recording(rank(0)), PYNCCL),
}

WORK = dict.fromkeys(("moe", "attention", "gemm", "other"), 100.0)
BUSY = step(*[kernel(us=100.0)] * 3, all_reduce=300.0, other_collectives=50.0, **WORK)
"""750 us of 1000 are busy, 300 of them in all-reduces; 250 us are gaps."""
LATE = [rank(0, *[BUSY] * 8), rank(1, *[step(*[kernel(us=300.0)] * 3, all_reduce=900.0, moe=100.0)] * 8)]
IDLE = step(*[kernel(us=100.0)] * 3, all_reduce=300.0, moe=50.0)


def bound(*ranks, token_us=1000.0):
    return lambda: collectives.work_bounds_the_step(recording(*ranks, inter_token_us=token_us))


def bandwidth(bytes_a_second, *ranks, bytes_a_step=2e9, token_us=1000.0):
    found = recording(*(ranks or both(BUSY)), inter_token_us=token_us)
    return lambda: collectives.bandwidth_is_possible(found, bytes_a_step, bytes_a_second)


def busy_for(share):
    """A step of which so much is gaps."""
    return both(step(*[kernel(us=100.0)] * 3, all_reduce=300.0, moe=700.0 - 1000.0 * share))


def working_for(us):
    """A step of 1000 us with so much work in it."""
    return both(step(*[kernel(us=50.0)] * 3, all_reduce=150.0, moe=us - 150.0))


STEP = {
    "work bounds the step": bound(*both(BUSY)),
    "the rank that waits least is judged": bound(*reversed(LATE)),
    "gaps bound the step": bound(*both(IDLE)),
    "gaps bound a profiled step": bound(*both(IDLE), token_us=None),
    "work bounds a profiled step": bound(*both(BUSY), token_us=None),
    "an unprofiled step is shorter": bound(*both(IDLE), token_us=400.0),
    "an unprofiled step is shorter than its work": bound(*both(BUSY), token_us=500.0),
    "gaps are as long as allowed": bound(*busy_for(tolerances.IDLE_SHARE)),
    "gaps are longer than allowed": bound(*busy_for(tolerances.IDLE_SHARE + 0.01)),
    "work is just enough to be judged": bound(*working_for(tolerances.JUDGED_WORK_US)),
    "a small model leaves gaps whatever is right": bound(*working_for(tolerances.JUDGED_WORK_US - 1)),
    "both ranks wait": bound(
        *[rank(i, *[step(*[kernel(us=100.0 + 500 * (i == n)) for n in (0, 1)], all_reduce=700.0)] * 8) for i in (0, 1)]
    ),
    "steps make three tokens": bound(*both(replace(IDLE, decode_tokens=3)), token_us=300.0),
    "no step has a successor": bound(*both(replace(BUSY, period_us=None))),
    "a rank of the step is missing": bound(rank(0, *[BUSY] * 8)),
    "the bandwidth is possible": bandwidth(3.35e12),
    "the bandwidth is that of a profiled step": bandwidth(3.35e12, token_us=None),
    "the bandwidth is just possible": bandwidth(2e12 / tolerances.BANDWIDTH_OVERSHOOT),
    "the bandwidth is impossible": bandwidth(1.5e12),
    "the bandwidth of the machine is not known": bandwidth(None),
    "the step time is not known": lambda: collectives.bandwidth_is_possible(NO_RECORD, 2e9, 3e12),
    "neither is known": lambda: collectives.bandwidth_is_possible(NO_RECORD, 2e9, None),
}
CASES = WIRE | STEP


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]


def test_what_the_report_lists_of_a_step():
    found = collectives.measurements(recording(*reversed(LATE), inter_token_us=1000.0))
    assert {one.name: (one.samples, one.where) for one in found} == {
        "all-reduce net": ((100.0,) * 24, {}),
        "all-reduce skew": ((200.0,) * 24, {}),
        "step: all-reduce net": ((300.0,), {"rank": "0"}),
        "step: waiting for other ranks": ((0.0,), {"rank": "0"}),
        "step: MoE": ((100.0,), {"rank": "0"}),
        "step: attention": ((100.0,), {"rank": "0"}),
        "step: GEMM": ((100.0,), {"rank": "0"}),
        "step: other kernels": ((100.0,), {"rank": "0"}),
        "step: other collectives": ((50.0,), {"rank": "0"}),
        "step: gaps between kernels": ((250.0,), {"rank": "0"}),
    }
    assert {(one.unit, one.higher_is_better) for one in found} == {("us", False)}
    alone = collectives.measurements(recording(rank(0, *[BUSY] * 8)))
    assert [one.name for one in alone] == [one.name for one in found[2:]]


def test_every_answer_of_nccl_is_listed_once_and_in_order():
    assert collectives.message_choices(heard(LL, SIMPLE, LL), MESSAGE) == (LL, SIMPLE)
    assert collectives.message_choices(NO_RECORD, MESSAGE) == ()
