"""Where the time of steps goes whose every all-reduce and every part is given."""

from __future__ import annotations

import pytest

from glm5check.evidence import Work
from glm5check.trace.latency import Division, Part, divisions, reduction_times
from tests.selftest.graphs.records import GATHER, kernel, rank, step


def ranks(*times, steps=2, **busy):
    """A rank for each list of durations of the all-reduces of a step."""
    return [rank(i, *[step(*[kernel(us=us) for us in one], GATHER, **busy)] * steps) for i, one in enumerate(times)]


def test_net_is_the_least_and_skew_the_range_over_the_ranks():
    found = reduction_times(ranks([10.0, 20.0], [13.0, 18.0], [11.0, 30.0]))
    assert found.net_us == (10.0, 18.0, 10.0, 18.0)
    assert found.skew_us == (3.0, 12.0, 3.0, 12.0)
    assert (found.median_net_us, found.median_skew_us) == (14.0, 7.5)


def test_ranks_that_cannot_be_matched_have_no_times():
    two = ranks([10.0, 20.0], [10.0, 20.0])
    assert reduction_times(two) is not None
    assert reduction_times(two[:1]) is None
    assert reduction_times([]) is None
    assert reduction_times([two[0], *ranks([1.0], [1.0])[1:]]) is None
    assert reduction_times([two[0], *ranks([1.0, 2.0], [1.0, 2.0], steps=3)[1:]]) is None
    assert reduction_times([rank(0, *[step(GATHER)] * 2), rank(1, *[step(GATHER)] * 2)]) is None
    assert reduction_times([rank(0, steady=()), rank(1, steady=())]) is None


BUSY = {"all_reduce": 40.0, "moe": 100.0, "attention": 50.0, "gemm": 25.0, "other": 10.0, "other_collectives": 5.0}


def parts(division):
    return {part: us for part, us in division.parts_us.items() if us}


def test_a_step_divides_into_its_parts_and_gaps():
    """Of 40 us in all-reduces, 30 of 60 of the second rank's are the transfer."""
    first, second = divisions(ranks([10.0, 20.0], [20.0, 40.0], **BUSY))
    assert (first.rank, second.rank, first.step_us) == (0, 1, 1000.0)
    rest = {
        Part.MOE: 100.0,
        Part.ATTENTION: 50.0,
        Part.GEMM: 25.0,
        Part.OTHER: 10.0,
        Part.COLLECTIVE: 5.0,
        Part.GAPS: 770.0,
    }
    assert parts(first) == {Part.NET: 40.0, **rest}
    assert parts(second) == {Part.NET: 20.0, Part.WAITING: 20.0, **rest}
    assert second.share(Part.WAITING) == 0.02


def test_the_rank_that_waits_least_comes_first():
    assert [one.rank for one in divisions(ranks([20.0], [10.0], [15.0], **BUSY))] == [1, 2, 0]


def test_one_rank_alone_waits_for_nobody():
    (only,) = divisions(ranks([10.0, 20.0], **BUSY))
    assert only.parts_us[Part.NET] == 40.0
    assert only.parts_us[Part.WAITING] == 0.0


def test_steps_without_a_period_are_left_out_and_the_mean_is_of_the_others():
    long, short, last = step(period=1500.0, moe=300.0), step(period=500.0, moe=100.0), step(period=None, moe=900.0)
    (only,) = divisions([rank(0, long, short, last)])
    assert (only.step_us, only.parts_us[Part.MOE], only.parts_us[Part.GAPS]) == (1000.0, 200.0, 800.0)
    assert divisions([rank(0, last)]) == []


def test_ranks_without_a_single_all_reduce_divide_too():
    found = divisions([rank(0, step(GATHER, moe=100.0)), rank(1, step(GATHER, moe=100.0))])
    assert [one.parts_us[Part.NET] for one in found] == [0.0, 0.0]


def test_overlaps_leave_no_negative_gap():
    (only,) = divisions([rank(0, step(period=100.0, moe=80.0, gemm=60.0))])
    assert only.parts_us[Part.GAPS] == 0.0
    assert set(step(moe=1.0).busy_us) == {Work.MOE}


DIVISION = Division(rank=3, step_us=100.0, parts_us={Part.MOE: 60.0, Part.NET: 10.0, Part.GAPS: 30.0})


@pytest.mark.parametrize(
    ("lasting", "gaps", "whole"), [(100.0, 30.0, 100.0), (80.0, 10.0, 80.0), (50.0, 0.0, 70.0), (200.0, 130.0, 200.0)]
)
def test_another_length_changes_the_gaps_alone(lasting, gaps, whole):
    found = DIVISION.lasting(lasting)
    assert (found.rank, found.step_us, found.parts_us[Part.GAPS]) == (3, whole, gaps)
    assert (found.parts_us[Part.MOE], found.parts_us[Part.NET]) == (60.0, 10.0)


def test_the_largest_part_bounds_the_step():
    assert DIVISION.largest is Part.MOE
    assert DIVISION.lasting(500.0).largest is Part.GAPS
