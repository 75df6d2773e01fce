"""What do the collectives of a decode step cost, and which one thing bounds the step?"""

import pytest

from glm5check.checks import collectives, graphs
from glm5check.records import Outcome


@pytest.fixture
def judged(evidence, measured_identity, verdict):
    """Judges findings about speed, unless the profile is of another run than the one that was measured."""

    def judge(findings):
        strangers = [
            one for one in graphs.same_run(evidence.fingerprint, measured_identity) if one.outcome is Outcome.FAILED
        ]
        verdict(strangers or findings)

    return judge


def test_the_protocol_suits_the_message(evidence, expectations, judged):
    """By NCCL's TUNING line: Simple is four times as slow as LL at one token's message. Kernel names always say LL."""
    judged(collectives.the_protocol_suits_the_message(evidence, expectations.message_bytes, expectations.preflight))


@pytest.mark.perf
def test_all_reduces_are_as_fast_as_alone(evidence, expectations, judged):
    """Net latency, the least of all ranks, against the same backend replayed alone in the pre-flight.

    `glm5check preflight --json preflight.json`, kept beside the traces or in the report's directory.
    """
    judged(collectives.all_reduces_are_as_fast_as_alone(evidence, expectations.message_bytes, expectations.preflight))


def test_bandwidth_is_possible(evidence, read_by_a_step, judged):
    """A step faster than memory can read its bytes was measured wrongly; the share of the bandwidth is reported."""
    judged(collectives.bandwidth_is_possible(evidence, *read_by_a_step))


@pytest.mark.perf
def test_work_bounds_the_step(evidence, judged, measure):
    """The step's time by all-reduce, waiting, attention, MoE, GEMM and gaps, with the one that bounds it."""
    for measurement in collectives.measurements(evidence):
        measure(measurement)
    judged(collectives.work_bounds_the_step(evidence))
