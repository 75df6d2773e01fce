"""Parameters of a live server against the GGUF files: what the workers' probe tells, and what it should tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from glm5check.checkpoint.index import GgufSet
from glm5check.errors import ServerError
from glm5check.glm5.dimensions import Dimensions
from glm5check.glm5.tensors import canonical_name, expected_tensors
from glm5check.sharding.expected import absorbed_chunks, digest, float_chunks, raw_chunks
from glm5check.sharding.partition import Parameter, partition

WINDOW_BYTES: Final = 4 << 30
"""Bytes of parameters that one call digests: seconds, so that a call never meets a time limit."""
ABSORBED: Final = ("W_UK_T", "W_UV")
FLOATS: Final = ("float32", "float16", "bfloat16")

Rpc = Callable[..., Sequence[Any]]
"""Calls a probe method with arguments on every rank and returns a result a rank: `Client.collective_rpc`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveParameter:
    """A parameter as one rank holds it. `error` says why it could not be digested, else it is empty."""

    name: str
    rank: int
    digest: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    types: tuple[int, ...] = ()
    address: int = 0
    device: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a rank must hold under a parameter's name, in the type in which it holds it."""

    name: str
    rank: int
    digest: str
    types: tuple[int, ...]
    tensors: tuple[str, ...]


def read_parameters(rpc: Rpc, progress: Callable[[str], None] = lambda _: None) -> list[LiveParameter]:
    """Every parameter of every rank. ServerError if a worker fails as a whole."""
    sizes = _checked(rpc("parameter_sizes"))
    found: list[LiveParameter] = []
    for first, count in _windows(list(sizes[0].values())):
        progress(f"digesting parameters {first + 1} to {first + count} of {len(sizes[0])} on {len(sizes)} ranks")
        for answer in _checked(rpc("parameter_digests", str(first), str(count))):
            found += [_live(name, int(answer["rank"]), told) for name, told in answer["parameters"].items()]
    return found


class Reference:
    """What every rank must hold, computed from the files of a set. `parameters` lists it by rank and vLLM module."""

    def __init__(self, model: GgufSet, ranks: int) -> None:
        self.model = model
        self.tensors = {canonical_name(name): info for name, info in model.tensors.items()}
        specs = list(expected_tensors(Dimensions.from_gguf(model.metadata), nextn=True))
        self.parameters: list[dict[str, Parameter]] = []
        for rank in range(ranks):
            held = partition(specs, self.tensors, ranks, rank)
            self.parameters.append({parameter.module: parameter for parameter in held})

    def expectations(self, live: Sequence[LiveParameter]) -> list[Expectation]:
        """For each live parameter that the files say something about, what it must hold; ranks in parallel."""
        with ThreadPoolExecutor() as pool:
            return [found for found in pool.map(self._expectation, live) if found is not None]

    def _expectation(self, live: LiveParameter) -> Expectation | None:
        parameter, form = self._find(live.name, live.rank)
        if parameter is None or live.error or 0 in live.shape:
            return None
        raw = self.model.raw
        if form == "raw":
            chunks: Iterator[Any] = raw_chunks(parameter, raw)
        elif live.dtype not in FLOATS:
            return None
        elif form in ABSORBED:
            chunks = absorbed_chunks(parameter, raw, live.dtype, form)
        else:
            chunks = float_chunks(parameter, raw, live.dtype)
        names = tuple(piece.tensor.name for piece in parameter.pieces)
        expected = digest(chunks)
        for tensor in names:
            self.model.forget(tensor)
        types = parameter.quant_types if form == "raw" else ()
        return Expectation(name=live.name, rank=live.rank, digest=expected, types=types, tensors=names)

    def _find(self, name: str, rank: int) -> tuple[Parameter | None, str]:
        """The parameter that a vLLM name stands for, and in which form: raw, float, or one of ABSORBED."""
        held = self.parameters[rank]
        module, _, own = name.rpartition(".")
        if own in ABSORBED:
            return held.get(module.partition(".self_attn.")[0] + ".self_attn.kv_b_proj"), own
        if own.endswith("qweight"):
            return held.get(name.removesuffix("_qweight") if own != "qweight" else module), "raw"
        return held.get(module if own == "weight" else name), "float"


def _windows(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = total = 0
    for place, size in enumerate(sizes):
        if place > first and total + size > WINDOW_BYTES:
            yield first, place - first
            first, total = place, 0
        total += size
    if sizes:
        yield first, len(sizes) - first


def _checked(answers: Sequence[Any]) -> list[Mapping[str, Any]]:
    for rank, answer in enumerate(answers):
        if not isinstance(answer, dict) or "error" in answer:
            reason = answer.get("error") if isinstance(answer, dict) else answer
            raise ServerError(f"the probe of rank {rank} failed: {reason}", do="read the server's log")
    if not answers:
        raise ServerError("no rank answered the probe", do="start the server with the probe as worker extension")
    return list(answers)


def _live(name: str, rank: int, told: Mapping[str, Any]) -> LiveParameter:
    if "error" in told:
        return LiveParameter(name=name, rank=rank, error=str(told["error"]))
    return LiveParameter(
        name=name,
        rank=rank,
        digest=str(told["digest"]),
        shape=tuple(told["shape"]),
        dtype=str(told["dtype"]),
        types=tuple(told["types"]),
        address=int(told["address"]),
        device=str(told["device"]),
    )
