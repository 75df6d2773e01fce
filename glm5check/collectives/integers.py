"""Crafted inputs whose sum is known exactly, and what a wrong sum looks like.

bfloat16 holds every integer up to 256, so values up to 256 / ranks have partial sums that are exact in any order of
addition: a result is right bit for bit or wrong. Each value depends on rank, position and round, so that a missing
rank, a shifted or swapped piece and a result of an earlier round all change it.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

_EXACT_IN_BF16 = 256
# Odd multipliers, unrelated to powers of two: a shift by any block size changes the values.
_POSITION, _RANK, _ROUND = 2654435761, 40503, 69069
_MODULUS = 2**31 - 1


def crafted(rank: int, ranks: int, round_: int, elements: int, device: torch.device) -> torch.Tensor:
    """Rank's input of a round: `elements` integers in [-256 // ranks, 256 // ranks], bfloat16, shape (elements,)."""
    largest = max(1, _EXACT_IN_BF16 // ranks)
    position = torch.arange(elements, dtype=torch.int64, device=device)
    mixed = (position * (_POSITION + 2 * rank) + (rank + 1) * _RANK + (round_ + 1) * _ROUND * (rank + 3)) % _MODULUS
    mixed = (mixed ^ (mixed >> 13)) % (2 * largest + 1) - largest
    return mixed.to(torch.bfloat16)


def expected_sum(ranks: int, round_: int, elements: int, device: torch.device) -> torch.Tensor:
    """The exact sum of all ranks' inputs of a round, bfloat16, shape (elements,)."""
    total = torch.zeros(elements, dtype=torch.float32, device=device)
    for rank in range(ranks):
        total += crafted(rank, ranks, round_, elements, device)
    return total.to(torch.bfloat16)


def differs(got: torch.Tensor, want: torch.Tensor, others: Iterable[tuple[int, torch.Tensor]]) -> str:
    """What is wrong with a result, in words; empty if it is right bit for bit.

    `others` are the right answers of other rounds, with their numbers: looked at only to tell a stale result from a
    corrupted one.
    """
    wrong = torch.nonzero(got != want).flatten()
    if not len(wrong):
        return ""
    size = got.element_size()
    first, last = int(wrong[0]), int(wrong[-1])
    place = f"{len(wrong)} of {len(want)} elements wrong, bytes {first * size} to {(last + 1) * size - 1}"
    looks = got[wrong]
    if bool(torch.isnan(looks).all()):
        return f"{place}: never written (the poison is still there)"
    for round_, stale in others:
        if torch.equal(looks, stale[wrong]):
            return f"{place}: the result of round {round_}"
    return f"{place}: first {float(got[first]):g} instead of {float(want[first]):g}"
