"""What everyone exchanges: frozen records, made by readers and drivers, judged by `checks`, rendered by `reports`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """The three outcomes. Missing evidence is INCONCLUSIVE, never PASSED."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One statement of one check about one thing.

    `check` is `<concern>.<what>`, as in `decode.mean_kl`. `got` and `want` are rendered text (`want` includes the
    reason); `value`, `bound` and `unit` are the numbers behind them where there are any. `where` names the thing
    (`{"prompt": "fox", "tp": "2"}`), `cause` the one likely cause, `repeat` the command that shows it again.
    """

    check: str
    outcome: Outcome
    got: str
    want: str
    where: Mapping[str, str] = field(default_factory=dict)
    cause: str = ""
    repeat: str = ""
    value: float | None = None
    bound: float | None = None
    unit: str = ""

    @property
    def concern(self) -> str:
        return self.check.partition(".")[0]

    def __str__(self) -> str:
        place = " ".join(f"{key}={value}" for key, value in self.where.items())
        lines = [f"{self.check}: got {self.got}, but should be {self.want}" + (f" [{place}]" if place else "")]
        if self.cause:
            lines.append(f"  likely cause: {self.cause}")
        if self.repeat:
            lines.append(f"  to repeat: {self.repeat}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured quantity: every sample, in measuring order, with its unit and what it was measured on."""

    name: str
    unit: str
    samples: tuple[float, ...]
    higher_is_better: bool
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """One generated or scored token: its id, its natural-log probability, and the alternatives the server gave.

    `top` maps token id to logprob. It is empty where the server gave none; it holds the whole vocabulary where the
    server was asked for all of it.
    """

    token_id: int
    logprob: float
    top: Mapping[int, float] = field(default_factory=dict)

    @property
    def margin(self) -> float:
        """Gap in nats between the two likeliest tokens; infinite if fewer than two are known."""
        best = sorted(self.top.values(), reverse=True)[:2]
        return best[0] - best[1] if len(best) == 2 else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What a server, an oracle or a golden answered to one prompt at temperature 0.

    A request that failed keeps its place, with the reason in `error` and nothing else.
    """

    prompt: str
    """Name of the prompt in the data files, not its text."""
    prompt_ids: tuple[int, ...] = ()
    tokens: tuple[TokenChoice, ...] = ()
    text: str = ""
    finish_reason: str = ""
    error: str = ""

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(choice.token_id for choice in self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Teacher-forced scores of one fixed text: entry i scores token i given tokens 0..i-1.

    `tokens[0]` has no score and is left out, so `len(tokens) == len(prompt_ids) - 1`. A request that failed has the
    reason in `error` and no tokens.
    """

    prompt: str
    prompt_ids: tuple[int, ...]
    tokens: tuple[TokenChoice, ...]
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """What NVML said about one GPU at one moment: clocks in MHz, power in W, temperature in degrees Celsius.

    `throttle_reasons` are NVML's names in lower case without their prefix (`hw_slowdown`, `sw_power_cap`, ...),
    `nvlinks` how many of its NVLinks are up, `utilisation` in percent.
    """

    index: int
    name: str
    driver: str
    sm_clock: int
    sm_clock_max: int
    memory_clock: int
    memory_clock_max: int
    throttle_reasons: tuple[str, ...] = ()
    temperature: int = 0
    power: float = 0.0
    power_limit: float = 0.0
    pcie_generation: int = 0
    pcie_width: int = 0
    nvlinks: int = 0
    utilisation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWrites:
    """What a probe saw of one attention layer on one rank, whose output buffer it had filled with NaN before each call.

    `rows` are the rows of real tokens over all `calls`, `unwritten` those of them that still held NaN after the call,
    and `other_tensor` the calls that returned another memory than the buffer that was written.
    """

    layer: str
    rank: int
    calls: int
    rows: int
    unwritten: int
    other_tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterCall:
    """One call of one layer's router: what went in, what came out, and what the layer does with it.

    `logits` are [tokens, experts], `expert_ids` and `weights` [tokens, experts used]; `output_scale` is what the layer
    multiplies the sum of its routed experts by.
    """

    layer: str
    rank: int
    bias: tuple[float, ...]
    bias_dtype: str
    logits: tuple[tuple[float, ...], ...]
    expert_ids: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[float, ...], ...]
    output_scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What a GGUF file or an HF directory says about tokens.

    `tokens` by id, without padding; `merges` as "left right"; `end_ids` every id that ends a sequence.
    """

    source: str
    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    end_ids: frozenset[int]
    begin_id: int | None
    template: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """One answer as it was streamed, in pieces, beside the same request's whole answer."""

    prompt: str
    pieces: tuple[str, ...]
    whole: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Speculative decoding over some requests: verified drafts, and how many had position i accepted."""

    drafts: float
    accepted: tuple[float, ...]

    def since(self, earlier: Acceptance) -> Acceptance:
        """What came after `earlier`."""
        before = (*earlier.accepted, *([0.0] * (len(self.accepted) - len(earlier.accepted))))
        return Acceptance(
            drafts=self.drafts - earlier.drafts,
            accepted=tuple(a - b for a, b in zip(self.accepted, before, strict=True)),
        )
