"""What a seeded fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class FaultClass(StrEnum):
    """The part of a deployment that a fault is in."""

    FILES = "files"
    LOADING = "loading"
    KERNELS = "kernels"
    ATTENTION = "attention"
    CACHE = "cache"
    ROTARY = "rotary"
    INDEXER = "indexer"
    ROUTING = "routing"
    NUMBERS = "numbers"
    TOKENIZER = "tokenizer"
    SPECULATION = "speculation"
    GRAPHS = "graphs"
    ALL_REDUCE = "all-reduce"
    SPEED = "speed"
    LIVENESS = "liveness"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault that was reported of a real deployment, made on purpose.

    `apply` changes this process only; it is called once in every process of the server, before the model is built.
    """

    name: str
    fault_class: FaultClass
    stands_for: str
    """The kind of report that it imitates."""
    seeded: str
    """What is done to the server."""
    caught_by: str
    """The test that must fail with it, as `tests/<concern>/<file>::<test>`."""
    says: str
    """Words of that failure that name the kind of fault."""
    apply: Callable[[], None]
    needs_gpu: bool = False
