"""What is measured: each workload is a load and the one number that is taken from a run of it.

Names are those of floors.toml and of reports. All prompts are random, so nothing is found in a prefix cache. Speed of
a single stream is tokens over the whole time of a request, as a user sees it and as `output_throughput` counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from glm5check.errors import OptionError
from glm5check.serving.load import Load, run_load
from glm5check.serving.timing import LoadRun

SINGLE: Final = "decode.single_stream"
LONG: Final = "decode.long_context"
PREFILL: Final = "prefill.long_prompt"
FIRST_TOKEN: Final = "prefill.first_token"  # noqa: S105 - the word token, not a secret
SHORT_TOKENS: Final = 32
DECODE_TOKENS: Final = 64
SINGLE_TOKENS: Final = 128
"""Enough that the first token's own time is a few percent of single-stream decode."""
LONG_TOKENS: Final = 8192
"""Prompt tokens at long context where the server takes that many: well past index_topk, so that DSA selects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`value` takes from a run what is measured, in `unit`."""

    name: str
    unit: str
    load: Load
    value: Callable[[LoadRun], float]
    higher_is_better: bool = True

    def run(self, base_url: str, *, seed: int, api_key: str = "") -> LoadRun:
        """One round; `seed` makes its prompts new."""
        return run_load(base_url, replace(self.load, seed=seed), api_key=api_key)


def _first_token_ms(run: LoadRun) -> float:
    return 1000 * run.completed[0].ttft if run.completed else float("nan")


def ladder_name(streams: int) -> str:
    return f"decode.streams_{streams}"


def workloads(model: str, context: int, rungs: tuple[int, ...]) -> dict[str, Workload]:
    """The workloads that a server with room for `context` tokens can take, by name.

    `rungs` are the concurrencies of the ladder above one stream. Raises OptionError where no short request fits.
    """
    if context < 2 * (SHORT_TOKENS + DECODE_TOKENS):
        raise OptionError(
            f"a context of {context} tokens is too short to measure anything",
            do=f"serve with --max-model-len of {2 * (SHORT_TOKENS + DECODE_TOKENS)} or more",
        )
    short = Load(model=model, input_tokens=SHORT_TOKENS, output_tokens=DECODE_TOKENS)
    long_prompt = min(LONG_TOKENS, context - DECODE_TOKENS - 1)
    long = replace(short, input_tokens=long_prompt)
    every = [
        Workload(
            name=SINGLE,
            unit="tok/s",
            load=replace(short, output_tokens=min(SINGLE_TOKENS, context - SHORT_TOKENS - 1)),
            value=lambda run: run.output_throughput,
        ),
        Workload(name=LONG, unit="tok/s", load=long, value=lambda run: run.decode_rate),
        Workload(name=PREFILL, unit="tok/s", load=replace(long, output_tokens=1), value=lambda run: run.prefill_rate),
        Workload(
            name=FIRST_TOKEN,
            unit="ms",
            load=replace(short, output_tokens=1),
            value=_first_token_ms,
            higher_is_better=False,
        ),
    ]
    for streams in rungs:
        load = replace(short, concurrency=streams, requests=streams)
        every.append(
            Workload(name=ladder_name(streams), unit="tok/s", load=load, value=lambda run: run.output_throughput)
        )
    return {workload.name: workload for workload in every}
