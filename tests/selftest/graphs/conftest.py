"""Recordings with a fault seeded into what was parsed, and profiles of both ranks to seed it into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import pytest

from fixtures import DATA
from glm5check.evidence import Recording
from glm5check.trace.profile import Profile, read_profile
from glm5check.trace.recording import read_recording
from glm5check.trace.steps import rank_trace

GRAPHS = DATA / "graphs"
Fault = Callable[[Profile], Profile]


@lru_cache(maxsize=8)
def _recording(name: str) -> Recording:
    return read_recording([GRAPHS / name])


@lru_cache(maxsize=4)
def _profiles(name: str) -> tuple[Profile, ...]:
    return tuple(read_profile(GRAPHS / name / f"rank{rank}.pt.trace.json.gz") for rank in (0, 1))


@pytest.fixture
def recording() -> Callable[[str], Recording]:
    """`recording("full")`: everything that was recorded of one configuration."""
    return _recording


@pytest.fixture
def profile() -> Callable[[str], Profile]:
    """`profile("full")`: rank 0's parsed profile, to be replaced and never changed."""
    return lambda name: _profiles(name)[0]


@pytest.fixture
def with_fault() -> Callable[[str, Fault, Sequence[int]], Recording]:
    """`with_fault("full", fault, ranks=(1,))`: the recording with the fault in the profiles of these ranks."""

    def seed(name: str, fault: Fault, ranks: Sequence[int] = (0, 1)) -> Recording:
        profiles = [fault(profile) if rank in ranks else profile for rank, profile in enumerate(_profiles(name))]
        return replace(_recording(name), ranks=tuple(rank_trace(profile) for profile in profiles))

    return seed
