"""Before speed is judged: is the measurement of it to be believed?"""

import pytest

from glm5check.checks import throughput
from glm5check.serving.workloads import DECODE_TOKENS, SHORT_TOKENS, SINGLE

pytestmark = pytest.mark.perf


def test_every_request_is_answered_in_full(bench, verdict):
    verdict(throughput.requests_answered([*bench.single_stream().runs, *bench.ladder().runs]))


@pytest.mark.parametrize("group", ["single_stream", "ladder"])
def test_the_server_counts_what_the_client_counts(bench, verdict, group):
    measured = getattr(bench, group)()
    verdict(throughput.counters_agree(measured.runs, measured.before, measured.after))


def test_the_client_is_not_the_limit(bench, verdict):
    verdict(throughput.client_keeps_up(bench.ladder().runs))


def test_the_machine_gives_full_speed(bench, verdict):
    """Clocks and throttling where GPUs serve; what others take of the cores where a CPU does."""
    measured = bench.single_stream()
    if measured.gpus:
        verdict(throughput.clocks(measured.gpus))
    else:
        verdict(throughput.neighbours_quiet(measured.neighbours, measured.withheld))


def test_decode_is_not_faster_than_the_hardware(bench, roofline, verdict):
    """A speed above bytes over bandwidth plus all-reduces is an error in the measurement.

    It says what share of the bound is reached and what each part of a step would give back. Where nobody measured an
    all-reduce they count as free, so the true share is higher than the one reported.
    """
    measured = bench.single_stream()
    bound = roofline.at(SHORT_TOKENS + DECODE_TOKENS // 2) if roofline else None
    verdict(throughput.below_bound(measured.series[SINGLE].measurement(), bound, measured.tokens_per_step))
