"""Does each rank hold the bytes that the partition gives it, and do loaders agree on who says which rank it is?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glm5check.checks.causes import MERGED_RANK
from glm5check.glm5.tensors import layer_of
from glm5check.records import Finding, Outcome
from glm5check.sharding.contract import Contract
from glm5check.sharding.live import ABSORBED, Expectation, LiveParameter

__all__ = [
    "LOAD_ORDER",
    "held_bytes",
    "held_types",
    "live_coverage",
    "live_parameters",
    "loader_contract",
    "separate_memory",
]


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


def live_parameters(live: Sequence[LiveParameter], expected: Sequence[Expectation]) -> list[Finding]:
    """Every parameter that the files say something about holds those bytes, on every rank, decoded with their types."""
    rule = "the digest of the bytes that the partition of the files gives this rank"
    if not expected:
        return [Finding(check="sharding.live", outcome=Outcome.INCONCLUSIVE, got="nothing to compare", want=rule)]
    found = {(parameter.name, parameter.rank): parameter for parameter in live}
    by_digest = {(wanted.name, wanted.digest): wanted.rank for wanted in expected}
    findings = []
    for wanted in expected:
        held = found[wanted.name, wanted.rank]
        where = {"parameter": wanted.name, "rank": str(wanted.rank), "tensors": ", ".join(wanted.tensors)}
        if held.digest != wanted.digest:
            owner = by_digest.get((wanted.name, held.digest))
            got = "other bytes" if owner is None else f"the bytes of rank {owner}"
            cause = MERGED_RANK if owner == 0 else ""
            findings.append(
                Finding(check="sharding.live", outcome=Outcome.FAILED, got=got, want=rule, where=where, cause=cause)
            )
        elif held.types and held.types != wanted.types:
            findings += held_types(held.types, wanted.types, where)
    said = f"{len(expected)} parameters equal on {len({wanted.rank for wanted in expected})} ranks"
    return findings or [Finding(check="sharding.live", outcome=Outcome.PASSED, got=said, want=rule)]


def live_coverage(
    live: Sequence[LiveParameter], expected: Sequence[Expectation], tensors: Collection[str]
) -> list[Finding]:
    """Every tensor of the file is in some compared parameter, or the reason why it cannot be is known.

    Names every parameter and tensor that was not compared.
    """
    covered = {name for wanted in expected for name in wanted.tensors}
    compared = {(wanted.name, wanted.rank) for wanted in expected}
    reasons: dict[str, list[str]] = {}
    unexplained = []
    names = {parameter.name for parameter in live}
    packed = {parameter.name for parameter in live if 0 in parameter.shape}
    for tensor in sorted(set(tensors) - covered):
        reason = _why_not_held(tensor, names, packed)
        if reason:
            reasons.setdefault(reason, []).append(tensor)
        else:
            unexplained.append(tensor)
    others = sorted({p.name for p in live if (p.name, p.rank) not in compared and not p.name.endswith("_type")})
    got = f"{len(covered)} of {len(tensors)} tensors compared"
    got += "".join(f"; {reason}: {', '.join(missing)}" for reason, missing in reasons.items())
    got += f"; parameters not compared: {', '.join(others)}" if others else ""
    got += f"; tensors that no parameter holds: {', '.join(unexplained)}" if unexplained else ""
    outcome = Outcome.FAILED if unexplained else Outcome.PASSED
    return [Finding(check="sharding.coverage", outcome=outcome, got=got, want="every tensor held by a parameter")]


def separate_memory(live: Sequence[LiveParameter]) -> list[Finding]:
    """No two parameters of a rank share memory: an output matrix that is the embedding was tied by mistake.

    Left out are the matrices that latent attention absorbs: views of kv_b_proj on some platforms.
    """
    want = "an address of its own for each parameter"
    owners: dict[tuple[int, str, int], list[str]] = {}
    for parameter in live:
        if parameter.address and 0 not in parameter.shape and not parameter.name.endswith(ABSORBED):
            owners.setdefault((parameter.rank, parameter.device, parameter.address), []).append(parameter.name)
    shared = {place: names for place, names in owners.items() if len(names) > 1}
    findings = [
        Finding(
            check="sharding.memory",
            outcome=Outcome.FAILED,
            got=f"{' and '.join(names)} at one address",
            want=want,
            where={"rank": str(rank)},
            cause="the embedding was tied to the output matrix: tie_word_embeddings was taken to be true",
        )
        for (rank, _, _), names in shared.items()
    ]
    if not owners:
        return [Finding(check="sharding.memory", outcome=Outcome.INCONCLUSIVE, got="no parameters", want=want)]
    return findings or [Finding(check="sharding.memory", outcome=Outcome.PASSED, got=f"{len(owners)} apart", want=want)]


def _why_not_held(tensor: str, names: set[str], packed: set[str]) -> str:
    """Why no comparable parameter holds `tensor`; empty if there is no good reason."""
    layer = layer_of(tensor)
    prefix = f"model.layers.{layer}."
    if ".indexer." in tensor and not any(name.startswith(prefix) and ".indexer." in name for name in names):
        return "vLLM built no indexer in these layers (dense attention)"
    if layer is not None and not any(name.startswith(prefix) for name in names):
        return "the multi-token-prediction block was not loaded"
    if tensor.endswith("ffn_gate_inp.weight") and f"{prefix}mlp.gate.weight" in packed:
        return "packed by vLLM for its kernel, so its bytes are gone"
    return ""


def _difference(got: NDArray[Any], want: NDArray[Any]) -> str:
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    rows = np.unique(np.argwhere(got.reshape(-1, got.shape[-1]) != want.reshape(-1, want.shape[-1]))[:, 0])
    return f"{rows.size} of {got.reshape(-1, got.shape[-1]).shape[0]} rows differ, the first of them row {rows[0]}"
