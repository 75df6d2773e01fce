"""Floors in tok/s by machine, read from floors.toml, each with its reason, date and source.

    [[machine]]
    name = "8 PCIe Blackwell"
    gpu = "Blackwell"          # regular expression, found in NVML's name of every GPU
    gpus = 8
    link = "pcie"              # or "nvlink"
    vllm = ">=0.20"            # versions as in requirements
    model = "Q4_K"             # regular expression, found in the name of the model file

    [[machine.floor]]
    measure = "decode.single_stream"
    kind = "floor"             # "floor" decides; "target" and "history" are reported and never fail
    value = 54.0
    unit = "tok/s"
    reason = "..."
    date = 2025-12-01
    source = "..."

The value is asserted as it stands: a margin is part of the number and told in its reason.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from glm5check import tolerances
from glm5check.errors import OptionError

MAX_FILE_BYTES: Final = 1 << 20


class Kind(StrEnum):
    """What a number is for. Only FLOOR decides."""

    FLOOR = "floor"
    TARGET = "target"
    HISTORY = "history"


class Link(StrEnum):
    """What the GPUs of a machine talk over."""

    PCIE = "pcie"
    NVLINK = "nvlink"


class Floor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number: what is measured, how much is enough and why. A time in ms is a ceiling, a speed a floor."""

    measure: str
    kind: Kind
    value: float
    unit: str
    reason: str
    date: datetime.date
    source: str

    @property
    def higher_is_better(self) -> bool:
        return self.unit != "ms"

    def __str__(self) -> str:
        return f"{'at least' if self.higher_is_better else 'at most'} {self.value:g} {self.unit}"


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines that a set of floors is for, and the floors."""

    name: str
    gpu: str
    gpus: int
    link: Link
    vllm: str
    model: str
    floor: tuple[Floor, ...]


class HostReference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many calibration units one decode step of a right server takes on a CPU, and where that was found."""

    cpu: str
    cpus: int
    ranks: int
    units: float
    date: datetime.date
    source: str


class Floors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    machine: tuple[Profile, ...] = ()
    host: tuple[HostReference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine at hand, in the terms of a profile; `gpus` holds one name a GPU that serves."""

    gpus: Sequence[str]
    link: Link
    vllm: str
    model: str


def read_floors(path: Path) -> Floors:
    """Raises OptionError that names the place for a file that cannot be read or holds anything unknown."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise OptionError("the file of floors is too long", where=str(path), do="a floor takes a few lines")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        floors = msgspec.convert(table, Floors)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise OptionError(f"the floors cannot be read: {error}", where=str(path), do=_ADVICE) from None
    for profile in floors.machine:
        _validate(profile, path)
    return floors


_ADVICE: Final = "write each as in fixtures/data/throughput/floors.toml"


def _validate(profile: Profile, path: Path) -> None:
    where = f"{path}, machine {profile.name!r}"
    try:
        SpecifierSet(profile.vllm)
        re.compile(profile.gpu), re.compile(profile.model)
    except (InvalidSpecifier, re.error) as error:
        raise OptionError(f"a pattern cannot be read: {error}", where=where, do=_ADVICE) from None
    for floor in profile.floor:
        if not floor.value > 0 or not floor.reason or not floor.source:
            raise OptionError(f"{floor.measure} needs a positive value, a reason and a source", where=where, do=_ADVICE)


def profile_for(floors: Floors, machine: Machine) -> Profile | None:
    """The first profile that fits the machine; None where none does."""
    return next((profile for profile in floors.machine if _fits(profile, machine)), None)


def _fits(profile: Profile, machine: Machine) -> bool:
    try:
        version = Version(machine.vllm)
    except InvalidVersion:
        return False
    return (
        len(machine.gpus) == profile.gpus
        and all(re.search(profile.gpu, name) for name in machine.gpus)
        and machine.link is profile.link
        and SpecifierSet(profile.vllm).contains(version, prereleases=True)
        and re.search(profile.model, machine.model) is not None
    )


def of_measure(profile: Profile | None, measure: str, kind: Kind) -> tuple[Floor, ...]:
    """The profile's numbers of one kind for one measure, lowest value first."""
    found = [floor for floor in profile.floor if (floor.measure, floor.kind) == (measure, kind)] if profile else []
    return tuple(sorted(found, key=lambda floor: floor.value))


def host_reference(floors: Floors, cpu: str, cpus: int, ranks: int) -> tuple[HostReference | None, bool]:
    """The reference for `ranks` ranks, and whether it is for this very CPU: that one first, else any."""
    candidates = [entry for entry in floors.host if entry.ranks == ranks]
    same = [entry for entry in candidates if re.search(entry.cpu, cpu) and entry.cpus == cpus]
    if same:
        return same[0], True
    return (candidates[0] if candidates else None), False


def as_facts(machine: Machine) -> Mapping[str, Any]:
    """The machine for a message: what a profile would have to say to fit it."""
    return {
        "gpu": machine.gpus[0] if machine.gpus else "none",
        "gpus": len(machine.gpus),
        "link": str(machine.link),
        "vllm": machine.vllm,
        "model": machine.model,
    }


def from_bound(tokens_per_second: float, parts: str) -> Floor:
    """A floor for GPUs without an entry: BOUND_SHARE of the roofline bound, or what any host manages if that is less.

    `tokens_per_second` is the bound; `parts` says what it is made of.
    """
    share, host = tolerances.BOUND_SHARE, 1 / tolerances.HOST_STEP_S
    reason = f"{share:.0%} of the {tokens_per_second:.4g} tok/s that this machine can give at most ({parts})"
    if host < share * tokens_per_second:
        reason = f"{tolerances.HOST_STEP_S * 1e3:g} ms of a host a step: less than {reason}"
    return Floor(
        measure="decode.single_stream",
        kind=Kind.FLOOR,
        value=min(share * tokens_per_second, host),
        unit="tok/s",
        reason=reason,
        date=datetime.datetime.now(datetime.UTC).date(),
        source="derived: this machine has no entry in floors.toml",
    )


def from_pace(reference: HostReference, pace: float, *, same_cpu: bool) -> Floor:
    """A floor for a model so small that the interpreter is the limit, not memory.

    A decode step of a right server took `reference.units` units of calibration. Here a unit takes `pace` seconds,
    measured on the cores of the ranks during the rounds, so a step should take units x pace. What this cannot know is
    how a CPU of another kind compares in interpreter, small matrices and process switches: less is asked for there.
    """
    share = tolerances.HOST_SHARE if same_cpu else tolerances.HOST_SHARE_ELSEWHERE
    expected = 1 / (reference.units * pace)
    return Floor(
        measure="decode.single_stream",
        kind=Kind.FLOOR,
        value=share * expected,
        unit="tok/s",
        reason=(
            f"{share:.0%} of the {expected:.4g} tok/s expected here: {reference.units:.4g} calibration units a step on"
            f" {'the same' if same_cpu else 'another'} CPU, {pace * 1e6:.4g} us a unit now (each round scaled to that)"
        ),
        date=datetime.datetime.now(datetime.UTC).date(),
        source=f"derived: this machine has no entry in floors.toml; {reference.source}, {reference.date}",
    )
