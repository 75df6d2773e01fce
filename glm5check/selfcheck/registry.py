"""Every fault that the suite is known to catch, or not to: the rows of the detection matrix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from glm5check.errors import OptionError
from glm5check.selfcheck import (
    carried_faults,
    checkpoint_faults,
    config_faults,
    evidence_faults,
    load_faults,
    server_faults,
)
from glm5check.selfcheck.seeded import SeededFault

ALL: Final[tuple[SeededFault, ...]] = (
    *checkpoint_faults.FAULTS,
    *config_faults.FAULTS,
    *evidence_faults.FAULTS,
    *load_faults.FAULTS,
    *carried_faults.FAULTS,
    *server_faults.FAULTS,
)
"""In the order in which they are run: the cheap before the dear."""
QUICK: Final = (
    "file_part_missing",
    "config_softmax",
    "trace_all_reduce_eager",
    "counters_disagree",
    "corrupt_all_reduce",
    "rank_ignored",
)
"""One for each place that faults are seeded in; only the last starts a server."""


def chosen(names: Iterable[str]) -> tuple[SeededFault, ...]:
    """The faults of these names, in the registry's order; all if none is given. Raises OptionError."""
    wanted = set(names)
    unknown = sorted(wanted - {fault.name for fault in ALL})
    if unknown:
        known = ", ".join(fault.name for fault in ALL)
        raise OptionError(f"no fault is called {', '.join(unknown)}", do=f"use some of {known}")
    return tuple(fault for fault in ALL if fault.name in wanted) if wanted else ALL
