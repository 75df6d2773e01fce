"""More streams, longer contexts, prefill and the first token, measured in interleaved rounds."""

import pytest

from glm5check.checks import throughput

pytestmark = pytest.mark.perf


def test_workloads_keep_their_ratios_and_floors(bench, machine_floors, verdict):
    """Rules that hold on any machine, each within one round: more streams give no less, prefill beats decode.

    They cannot see a server that is slow at everything alike; floors do, where floors.toml has some for this machine.
    """
    measured = bench.ladder()
    found = []
    for ratio in bench.ratios():
        found += throughput.ratio_kept(ratio, disturbance=measured.disturbance)
    for series in measured.series.values():
        floor = machine_floors.floor(series)
        if floor is not None:
            found += throughput.floor_reached(series.measurement(), floor, disturbance=measured.disturbance)
    verdict(found)


def test_no_workload_is_slower_than_its_baseline(bench, baseline, verdict):
    measured = bench.ladder()
    found = []
    for series in measured.series.values():
        now, source = series.measurement(), {"baseline": baseline.source}
        found += throughput.no_regression(now, baseline.samples(now), baseline=source, disturbance=measured.disturbance)
    verdict(found)
