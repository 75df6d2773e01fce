"""Does each rank hold the bytes that the partition gives it, and do loaders agree on who says which rank it is?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glm5check.checks.causes import MERGED_RANK
from glm5check.records import Finding, Outcome
from glm5check.sharding.contract import Contract

__all__ = ["LOAD_ORDER", "held_bytes", "held_types", "loader_contract"]


LOAD_ORDER: Final = "the parts lie in the order in which they were loaded, not in their logical order"


def held_bytes(
    got: NDArray[np.uint8],
    want: NDArray[np.uint8],
    where: Mapping[str, str],
    *,
    suspects: Mapping[str, NDArray[np.uint8]] | None = None,
) -> list[Finding]:
    """A rank's raw bytes equal the partition's. `suspects` maps likely causes to the bytes that they would leave."""
    rule = "exactly the bytes that the partition gives this rank"
    if got.shape == want.shape and (got == want).all():
        return [Finding(check="sharding.bytes", outcome=Outcome.PASSED, got=f"{got.shape}", want=rule, where=where)]
    cause = next((cause for cause, bytes_ in (suspects or {}).items() if np.array_equal(got, bytes_)), "")
    return [
        Finding(
            check="sharding.bytes",
            outcome=Outcome.FAILED,
            got=_difference(got, want),
            want=rule,
            where=where,
            cause=cause,
        )
    ]


def held_types(got: Sequence[int], want: Sequence[int], where: Mapping[str, str]) -> list[Finding]:
    """The quant type that the layer decodes each part with is the file's."""
    same = tuple(got) == tuple(want)
    outcome = Outcome.PASSED if same else Outcome.FAILED
    return [Finding(check="sharding.types", outcome=outcome, got=f"{tuple(got)}", want=f"{tuple(want)}", where=where)]


def loader_contract(contract: Contract, layers: Sequence[str], ranks: int) -> list[Finding]:
    """What the plugin's loaders read from their caller, vLLM's layers pass. Nothing needs to run to know it.

    `layers` names the merged layers of the model that are split.
    """
    want = "every argument that decides which rows a rank takes passed by vLLM, or the rank asked for by the plugin"
    missing = [
        f"{use.method} reads {use.argument!r} (default {use.default}) from {use.caller}" for use in contract.unmet
    ]
    if not missing or contract.compensated:
        got = "compensated in this process: " + "; ".join(missing) if missing else "agreed"
        return [Finding(check="sharding.contract", outcome=Outcome.PASSED, got=got, want=want)]
    if ranks == 1:
        got = "a drift that shows with more than one rank only: " + "; ".join(missing)
        return [Finding(check="sharding.contract", outcome=Outcome.PASSED, got=got, want=want)]
    affected = f"{len(layers)} layers: {', '.join(layers[:4])}{' ...' if len(layers) > 4 else ''}"
    return [
        Finding(
            check="sharding.contract",
            outcome=Outcome.FAILED,
            got="; ".join(missing),
            want=want,
            where={"layers": affected, "tp": str(ranks), "versions": contract.versions},
            cause=MERGED_RANK,
        )
    ]


def _difference(got: NDArray[Any], want: NDArray[Any]) -> str:
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    rows = np.unique(np.argwhere(got.reshape(-1, got.shape[-1]) != want.reshape(-1, want.shape[-1]))[:, 0])
    return f"{rows.size} of {got.reshape(-1, got.shape[-1]).shape[0]} rows differ, the first of them row {rows[0]}"
