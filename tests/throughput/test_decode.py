"""Is decode as fast as it should be here, steadily, and no slower than before?"""

import pytest

from glm5check.checks import throughput
from glm5check.floors import Kind, as_facts
from glm5check.serving.workloads import SINGLE

pytestmark = pytest.mark.perf


def test_single_stream_decode_reaches_its_floor(bench, machine_floors, benchmark, verdict):
    """The median of repeated rounds, by its exact interval, against the number in floors.toml as it stands there.

    A machine without an entry gets a derived floor that says from what; where none can be derived it is inconclusive.
    Where the floor follows the pace of CPUs, so does each round: what they lost in its seconds is not the server's.
    Targets are reported beside it and never fail.
    """
    measured = bench.single_stream(benchmark)
    series = measured.series[SINGLE]
    found = throughput.floor_reached(
        series.at_median_pace(),
        machine_floors.floor(series),
        machine=as_facts(machine_floors.machine),
        history=machine_floors.entries(SINGLE, Kind.HISTORY),
        disturbance=measured.disturbance,
    )
    for target in machine_floors.entries(SINGLE, Kind.TARGET):
        found += throughput.target_reported(series.measurement(), target)
    verdict(found)


def test_no_token_stalls(bench, verdict):
    """Every 50th token late is invisible in a mean and plain to whoever reads along."""
    measured = bench.single_stream()
    verdict(throughput.stalls(measured.runs, disturbance=measured.disturbance))


def test_decode_is_no_slower_than_the_baseline(bench, baseline, verdict):
    """By ranks and a least effect, against all nights of --glm5-baseline together."""
    measured = bench.single_stream()
    now = measured.series[SINGLE].measurement()
    source = {"baseline": baseline.source}
    verdict(throughput.no_regression(now, baseline.samples(now), baseline=source, disturbance=measured.disturbance))
