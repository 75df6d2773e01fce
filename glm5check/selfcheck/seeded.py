"""What a fault of the registry is: how it is seeded for a run of pytest, and which test must catch it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from glm5check.settings import EMBEDDED_RANKS, first_gguf
from glm5check.vllm_plugin.faults.fault import FaultClass

SELFTESTS: Final = "tests/selftest/"


class Place(StrEnum):
    """What a fault is seeded into."""

    SERVER = "server"
    """The embedded server, from inside: one start for each."""
    CHECKPOINT = "checkpoint"
    """A copy of the GGUF set."""
    CONFIG = "config"
    """A copy of the HF config, generation config or tokenizer, or the options of the deployment."""
    EVIDENCE = "evidence"
    """A copy of recorded traces and logs."""
    COLLECTIVE = "collective"
    """All-reduces between processes."""
    LOAD = "load"
    """A server that only pretends, and keeps a pace."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The checkout whose tests run, and an empty directory for one fault's files."""

    root: Path
    directory: Path

    @property
    def model(self) -> Path:
        """The embedded tiny GLM-5."""
        return self.root / "fixtures" / "data" / "tiny-glm5"

    def recording(self, name: str) -> Path:
        """One of the recordings of real servers."""
        return self.root / "fixtures" / "data" / "graphs" / name

    def copy(self, source: Path) -> Path:
        """A copy of a directory that may be spoiled."""
        return shutil.copytree(source, self.directory / source.name)


Seed: TypeAlias = Callable[[Workspace], AbstractContextManager[Sequence[str]]]
"""Makes the fault and yields the pytest options that lead the suite to it; undone when the block ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededFault:
    """One fault. `caught_by` is the node id of the test that must fail with it, in the words `says`.

    `beside` are other tests, or files of tests, that run with it: they tell a fault that another test catches from one
    that nobody does. A fault that only a self-test can seed has that self-test as `caught_by`: it passes if the check
    caught it.
    """

    name: str
    fault_class: FaultClass
    stands_for: str
    seeded: str
    seeded_in: Place
    caught_by: str
    says: str = ""
    seed: Seed
    beside: tuple[str, ...] = ()
    needs_gpu: bool = False

    @property
    def by_selftest(self) -> bool:
        return self.caught_by.startswith(SELFTESTS)

    @property
    def tests(self) -> tuple[str, ...]:
        """What pytest is asked to run, each once."""
        file = self.caught_by.partition("::")[0]
        return self.beside if file in self.beside else (self.caught_by, *self.beside)


def with_options(*options: str) -> Seed:
    """A fault that is seeded by pytest options alone."""

    @contextmanager
    def seed(workspace: Workspace) -> Iterator[Sequence[str]]:
        yield options

    return seed


def in_model(spoil: Callable[[Path], None]) -> Seed:
    """A fault in a copy of the embedded model's directory: GGUF files, HF config and tokenizer."""

    @contextmanager
    def seed(workspace: Workspace) -> Iterator[Sequence[str]]:
        copy = workspace.copy(workspace.model)
        model = first_gguf(copy)
        spoil(copy)
        yield (f"--glm5-model={model}", f"--glm5-config={copy}", f"--glm5-gpus={EMBEDDED_RANKS}")

    return seed
