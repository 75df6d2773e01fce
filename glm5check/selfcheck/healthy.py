"""Healthy servers that differ in what must not matter: number type, threads, order, batches, ranks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

RUNS: Final = 20
"""In a whole matrix."""
DTYPES: Final = ("float32", "bfloat16")
THREADS: Final = (1, 2)
BATCHES: Final = (8, 3, 5, 1, 6)
"""Sequences at most in a step: other requests are batched together, and other ones wait."""
SINGLE_RANK: Final = 4
"""Of so many seeds the last is served on one rank, the others on two."""
PATIENT: Final = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
"""Threads that wait do not spin: two ranks of two threads on two cores would take four times as long."""
TESTS: Final = (
    "tests/decode/test_against_oracle.py",
    "tests/decode/test_answers.py",
    "tests/decode/test_concurrency.py",
    "tests/decode/test_consistency.py",
    "tests/decode/test_oracles.py",
    "tests/decode/test_tokenizer.py",
    "tests/decode/test_whitebox.py",
    "tests/context/test_ladder.py",
    "tests/context/test_limit.py",
    "tests/context/test_reuse.py",
    "tests/sharding/test_live_digests.py",
)
"""What judges answers, without the soak: it takes as long as all others together."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One healthy server: the order of test files comes from `seed`, and so do the server's own random numbers."""

    dtype: str
    threads: int
    seed: int

    @property
    def batch(self) -> int:
        return BATCHES[self.seed % len(BATCHES)]

    @property
    def ranks(self) -> int:
        return 1 if self.seed % SINGLE_RANK == SINGLE_RANK - 1 else 2

    @property
    def name(self) -> str:
        return f"{self.dtype} threads={self.threads} batch={self.batch} ranks={self.ranks} order={self.seed}"

    @property
    def arguments(self) -> Sequence[str]:
        """What pytest is asked to run, and the server's options."""
        files = list(TESTS)
        random.Random(self.seed).shuffle(files)  # noqa: S311 - an order, not a secret
        server = (f"--dtype={self.dtype}", f"--max-num-seqs={self.batch}", f"--seed={self.seed}")
        options = (f"--glm5-gpus={self.ranks}", *(f"--glm5-serve-arg={argument}" for argument in server))
        return ("-m", "not slow", *options, *files)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"OMP_NUM_THREADS": str(self.threads), "PYTHONHASHSEED": str(self.seed), **PATIENT}


def variants(count: int) -> tuple[Variant, ...]:
    """The first `count` variants: every number type and number of threads with seed 0, then with seed 1, ..."""
    every = (Variant(dtype, threads, seed) for seed in itertools.count() for dtype in DTYPES for threads in THREADS)
    return tuple(itertools.islice(every, count))
