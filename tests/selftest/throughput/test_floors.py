"""Floors: the file is read strictly, a profile fits exactly its machines, the number is asserted as written."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fixtures import DATA
from glm5check import tolerances
from glm5check.calibration import Neighbours, Pace, read_bandwidth
from glm5check.errors import OptionError
from glm5check.floors import (
    Floors,
    Kind,
    Link,
    Machine,
    from_bound,
    from_pace,
    host_reference,
    of_measure,
    profile_for,
    read_floors,
)
from glm5check.serving.workloads import SINGLE

FILE = DATA / "throughput" / "floors.toml"
MACHINE = {
    "gpus": ["NVIDIA RTX PRO 6000 Blackwell Server Edition"] * 8,
    "link": Link.PCIE,
    "vllm": "0.32.0",
    "model": "GLM-5-UD-Q4_K_XL-00001-of-00010.gguf",
}


@pytest.fixture
def floors() -> Floors:
    return read_floors(FILE)


def test_the_historical_ladder_is_there_and_only_its_floor_decides(floors: Floors) -> None:
    profile = profile_for(floors, Machine(**MACHINE))
    assert [floor.value for floor in of_measure(profile, SINGLE, Kind.HISTORY)] == [20, 43]
    assert [floor.value for floor in of_measure(profile, SINGLE, Kind.FLOOR)] == [54]
    assert [floor.value for floor in of_measure(profile, SINGLE, Kind.TARGET)] == [100]


@pytest.mark.parametrize(
    "other",
    [
        {"gpus": ["NVIDIA H200"] * 8},
        {"gpus": MACHINE["gpus"][:4]},
        {"gpus": [*MACHINE["gpus"][:7], "NVIDIA A100"]},
        {"link": Link.NVLINK},
        {"vllm": "0.19.1"},
        {"vllm": "unknown"},
        {"model": "GLM-5-Q8_0.gguf"},
    ],
)
def test_another_machine_has_no_floor(floors: Floors, other: dict[str, object]) -> None:
    assert profile_for(floors, Machine(**(MACHINE | other))) is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value = 54.0", "value = -54.0", "decode.single_stream needs a positive value"),
        ("value = 54.0", 'value = "fast"', "Expected `float`"),
        ('kind = "target"', 'kind = "wish"', "Invalid enum value 'wish'"),
        ('vllm = ">=0.20"', 'vllm = "newer"', "a pattern cannot be read"),
        ('gpu = "Blackwell"', 'gpu = "("', "a pattern cannot be read"),
        ("gpus = 8", "gpus = 8\ncount = 8", "unknown field `count`"),
        ('source = "the goal', 'origin = "the goal', "required field `source`|unknown field `origin`"),
        ("[[host]]", "[[host", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = FILE.read_text()
    assert old in text
    path = tmp_path / "floors.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(OptionError, match=message):
        read_floors(path)


def test_a_derived_floor_says_from_what() -> None:
    floor = from_bound(160.0, "split weights 3 ms, all-reduces 3.2 ms")
    assert floor.value == tolerances.BOUND_SHARE * 160
    assert "of the 160 tok/s that this machine can give at most (split weights 3 ms" in floor.reason


def test_no_floor_asks_for_more_than_a_host_can_launch() -> None:
    """Two H200s could read an 8-layer model 1,973 times a second; right servers reached 390 to 480, eager ones 56."""
    floor = from_bound(1973.0, "split weights 0.26 ms")
    assert floor.value == 1 / tolerances.HOST_STEP_S
    assert 91 < floor.value < 390
    assert floor.reason.startswith("3.5 ms of a host a step: less than 30% of the 1973 tok/s")


def test_a_slower_cpu_gets_a_lower_floor_and_a_strange_one_a_laxer(floors: Floors) -> None:
    reference, same = host_reference(floors, "AMD EPYC", 2, 2)
    assert reference is not None
    assert same
    fast, slow = (from_pace(reference, pace, same_cpu=True).value for pace in (140e-6, 280e-6))
    assert fast == pytest.approx(2 * slow)
    assert from_pace(reference, 140e-6, same_cpu=False).value < fast
    assert host_reference(floors, "Intel Xeon", 16, 2) == (reference, False)
    assert host_reference(floors, "AMD EPYC", 2, 4) == (None, False)


def test_the_machine_is_measured_in_sane_units() -> None:
    """1 MB to 1 TB a second, 10 us to 100 ms a unit, a share from 0 to 1: wrong units would miss by thousands."""
    assert 1e6 < read_bandwidth(1 << 20, 1) < 1e12
    neighbours = Neighbours()
    pace = Pace(2)
    try:
        pace.start()
        time.sleep(1)
        assert 1e-5 < pace.stop() < 0.1
    finally:
        pace.close()
    assert 0 <= neighbours.share() <= 1


def test_it_refuses_to_measure_under_xdist(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        pytest_plugins = ["fixtures.throughput"]
        def pytest_configure(config):
            config.workerinput = {"workerid": "gw0"}
        """
    )
    pytester.makepyfile("def test_speed(alone): pass")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "fixtures.options")
    result.stdout.fnmatch_lines(["*speed cannot be measured under xdist: its workers slow each other*"])
    result.assert_outcomes(errors=1)
