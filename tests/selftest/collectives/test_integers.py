"""The crafted inputs: exact sums in any order, and no two rounds, ranks or positions alike."""

from __future__ import annotations

import pytest
import torch

from glm5check.collectives.integers import crafted, differs, expected_sum

CPU = torch.device("cpu")


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_sums_are_exact_in_any_order(ranks: int) -> None:
    """Added up one by one in bfloat16, forwards and backwards, the sum is the exact one."""
    parts = [crafted(rank, ranks, 0, 4096, CPU) for rank in range(ranks)]
    for order in (parts, parts[::-1]):
        total = torch.zeros_like(parts[0])
        for part in order:
            total += part
        assert torch.equal(total, expected_sum(ranks, 0, 4096, CPU))
    assert torch.equal(sum(part.to(torch.int64) for part in parts), expected_sum(ranks, 0, 4096, CPU).to(torch.int64))


@pytest.mark.parametrize("shift", [1, 8, 256, 2048])
def test_a_shifted_piece_shows(shift: int) -> None:
    right = expected_sum(8, 0, 8192, CPU)
    assert (right.roll(shift) != right).float().mean() > 0.9


def test_rounds_and_ranks_differ() -> None:
    parts = [crafted(rank, 8, round_, 4096, CPU) for rank in range(8) for round_ in range(5)]
    for index, one in enumerate(parts):
        for other in parts[:index]:
            assert (one != other).float().mean() > 0.9


def test_words_for_what_is_wrong() -> None:
    rounds = [(round_, expected_sum(2, round_, 64, CPU)) for round_ in (0, 1, 4)]
    want = expected_sum(2, 2, 64, CPU)
    assert differs(want.clone(), want, rounds) == ""
    assert "never written" in differs(torch.full_like(want, float("nan")), want, rounds)
    assert differs(rounds[2][1], want, rounds).endswith("the result of round 4")
    one = want.clone()
    one[10] += 1
    assert differs(one, want, rounds).startswith("1 of 64 elements wrong, bytes 20 to 21: first")
