"""Faults of speed and of answers: a server that only pretends, exact about time, to which the suite attaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from glm5check.selfcheck.seeded import Place, Seed, SeededFault, Workspace
from glm5check.serving.stub import Behaviour, running
from glm5check.vllm_plugin.faults.fault import FaultClass

MEASUREMENT: Final = "tests/throughput/test_measurement.py"
DECODE: Final = "tests/throughput/test_decode.py"
COUNTERS: Final = f"{MEASUREMENT}::test_the_server_counts_what_the_client_counts[single_stream]"
STALLS: Final = f"{DECODE}::test_no_token_stalls"
BESIDE: Final = (COUNTERS, STALLS)
"""Both judge the rounds of single-stream decode, which are measured once."""
FLOORS: Final = """\
[[machine]]
name = "a server that keeps a pace of 5 ms"
gpu = "."
gpus = 0
link = "pcie"
vllm = ">=0"
model = "stub"

[[machine.floor]]
measure = "decode.single_stream"
kind = "floor"
value = 180.0
unit = "tok/s"
reason = "a step of 5 ms gives 200, less a tenth"
date = 2026-11-29
source = "the stub's own pace"
"""


def _stub(**behaviour: Any) -> Seed:
    @contextmanager
    def seed(workspace: Workspace) -> Iterator[Sequence[str]]:
        floors = workspace.directory / "floors.toml"
        floors.write_text(FLOORS, encoding="utf-8")
        with running(Behaviour(**behaviour)) as url:
            yield (f"--glm5-attach={url}", f"--glm5-floors={floors}")

    return seed


def _fault(name: str, caught_by: str, seed: Seed, **words: Any) -> SeededFault:
    return SeededFault(
        name=name,
        fault_class=FaultClass.SPEED,
        seeded_in=Place.LOAD,
        caught_by=caught_by,
        seed=seed,
        beside=tuple(test for test in BESIDE if test != caught_by),
        **words,
    )


FAULTS: Final = (
    _fault(
        "decode_30_percent_slower",
        f"{DECODE}::test_single_stream_decode_reaches_its_floor",
        _stub(step_ms=5 / 0.7),
        stands_for="an upgrade after which decode is a third slower, and nothing else changed",
        seeded="a step takes 7.1 ms where the floor is of 5 ms",
        says="at least 180 tok/s",
    ),
    _fault(
        "stall_every_50th_token",
        STALLS,
        _stub(step_ms=5, stall_every=50, stall_ms=200),
        stands_for="a stall at every 50th token: invisible in a mean, plain to whoever reads along",
        seeded="every 50th step takes 200 ms longer",
        says="th token",
    ),
    _fault(
        "requests_dropped",
        f"{MEASUREMENT}::test_every_request_is_answered_in_full",
        _stub(step_ms=1, drop_every=50),
        stands_for="requests that end in the middle under load",
        seeded="the connection of every 50th request is cut",
        says="without usage",
    ),
    _fault(
        "requests_short",
        f"{MEASUREMENT}::test_every_request_is_answered_in_full",
        _stub(step_ms=1, short_every=50),
        stands_for="answers that end too early and look complete, so that speed looks better than it is",
        seeded="every 50th request gets half of its tokens",
        says="failed or short",
    ),
    _fault(
        "counters_disagree",
        COUNTERS,
        _stub(step_ms=2, counter_factor=0.97),
        stands_for="a client that counts other tokens than the server: one of the two speeds is wrong",
        seeded="the server counts 3 % fewer tokens than it sends",
        says="3.0% apart",
    ),
)
