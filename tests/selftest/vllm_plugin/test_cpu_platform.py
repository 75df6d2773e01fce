"""What is arranged for ranks on CPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from glm5check.vllm_plugin.cpu_platform import keep_to_core


@pytest.fixture
def cores() -> Iterator[list[int]]:
    """The cores of this thread, which has them back afterwards."""
    mine = os.sched_getaffinity(0)
    yield sorted(mine)
    os.sched_setaffinity(0, mine)


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@pytest.mark.usefixtures("one_thread")
def test_each_rank_has_a_core_of_its_own(cores: list[int]) -> None:
    keep_to_core(len(cores) - 1, len(cores))
    assert os.sched_getaffinity(0) == {cores[-1]}
    keep_to_core(1, 2)  # a drafter is built later, by a rank that has its core
    assert os.sched_getaffinity(0) == {cores[-1]}


@pytest.mark.usefixtures("one_thread")
def test_more_ranks_than_cores_share_them(cores: list[int]) -> None:
    keep_to_core(0, len(cores) + 1)
    assert os.sched_getaffinity(0) == set(cores)


def test_a_rank_with_threads_keeps_all_cores(cores: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    keep_to_core(0, 1)
    assert os.sched_getaffinity(0) == set(cores)
