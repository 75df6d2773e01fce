"""When each token of each request arrived, and the metrics that follow, by the names of `vllm bench serve`.

For a request that was sent at 0 and whose n tokens arrived at t_1 <= ... <= t_n (seconds):

    TTFT = t_1                      time to first token
    E2EL = t_n                      end-to-end latency
    TPOT = (t_n - t_1) / (n - 1)    time per output token; undefined for n = 1
    ITL  = t_i - t_(i-1), i > 1     inter-token latencies

Over a run that lasted D seconds from the first sending to the last token:

    output_throughput      = output tokens of completed requests / D
    total_token_throughput = (input + output tokens) / D
    request_throughput     = completed requests / D
    request_goodput        = completed requests that meet every limit / D

One thing differs on purpose. vLLM counts one ITL a chunk; we count one a token, so where a chunk carries k tokens
(speculative decoding, a stream interval) there is the gap and k - 1 zeros, and the mean ITL stays the mean TPOT.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTiming:
    """One request. `arrivals` holds one time a token, in seconds after sending; `sent` is on the client's clock.

    `chunks` is in how many pieces the server sent the tokens. Fewer different times than chunks mean that somebody on
    the way (the server's front end, the network, this client) was held up and that single tokens are not resolved.

    `error` is empty for a request that was answered in full. A request that failed or came back short or long has the
    reason there and stays in the run.
    """

    index: int
    sent: float
    arrivals: tuple[float, ...]
    input_tokens: int
    output_tokens: int
    chunks: int = 0
    error: str = ""

    @property
    def ttft(self) -> float:
        return self.arrivals[0]

    @property
    def e2el(self) -> float:
        return self.arrivals[-1]

    @property
    def tpot(self) -> float:
        """NaN where there is only one token."""
        count = len(self.arrivals)
        return (self.arrivals[-1] - self.arrivals[0]) / (count - 1) if count > 1 else math.nan

    @property
    def decode_rate(self) -> float:
        """Tokens after the first arrival over the time since; NaN where there are none."""
        later = sum(arrival > self.arrivals[0] for arrival in self.arrivals)
        return later / (self.arrivals[-1] - self.arrivals[0]) if later else math.nan

    @property
    def itl(self) -> tuple[float, ...]:
        return tuple(later - earlier for earlier, later in pairwise(self.arrivals))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """All requests of one run. `client_cpu` is the CPU seconds that the client itself spent while it ran."""

    requests: tuple[RequestTiming, ...]
    concurrency: int
    client_cpu: float = 0.0

    @property
    def completed(self) -> tuple[RequestTiming, ...]:
        return tuple(request for request in self.requests if not request.error)

    @property
    def failed(self) -> tuple[RequestTiming, ...]:
        return tuple(request for request in self.requests if request.error)

    @property
    def duration(self) -> float:
        """Seconds from the first sending to the last token; 0 where no token came."""
        ends = [request.sent + request.arrivals[-1] for request in self.requests if request.arrivals]
        return max(ends) - min(request.sent for request in self.requests) if ends else 0.0

    @property
    def output_tokens(self) -> int:
        return sum(request.output_tokens for request in self.completed)

    @property
    def input_tokens(self) -> int:
        return sum(request.input_tokens for request in self.completed)

    @property
    def output_throughput(self) -> float:
        """tok/s; 0 where nothing completed."""
        return self.output_tokens / self.duration if self.duration else 0.0

    @property
    def decode_rate(self) -> float:
        """tok/s of one stream once it decodes: tokens after the first arrival over the time since, the median request.

        With one token at the first arrival that is 1 / TPOT. Where the first arrival was held up and brought several
        tokens, TPOT would take them for decoded in no time. NaN where no token came later.
        """
        rates = [request.decode_rate for request in self.completed if not math.isnan(request.decode_rate)]
        return float(np.median(rates)) if rates else math.nan

    @property
    def bunched(self) -> float:
        """Share of chunks that arrived together with the one before; NaN without chunks."""
        chunks = sum(request.chunks for request in self.completed)
        return 1 - sum(len(set(request.arrivals)) for request in self.completed) / chunks if chunks else math.nan

    @property
    def prefill_rate(self) -> float:
        """Input tok/s of prefill as the user sees it: median over completed requests of input tokens / TTFT."""
        rates = [request.input_tokens / request.ttft for request in self.completed]
        return float(np.median(rates)) if rates else math.nan

    def goodput(self, limits: Mapping[str, float]) -> float:
        """Completed requests a second that meet every limit; `limits` maps ttft, tpot or e2el to milliseconds."""
        unknown = limits.keys() - {"ttft", "tpot", "e2el"}
        if unknown:
            raise ValueError(f"no such metric: {', '.join(sorted(unknown))}; there are ttft, tpot, e2el")
        good = sum(_meets(request, limits) for request in self.completed)
        return good / self.duration if self.duration else 0.0


def _meets(request: RequestTiming, limits: Mapping[str, float]) -> bool:
    # As in vLLM, a request of one token has no TPOT and meets every limit on it.
    values = {"ttft": request.ttft, "e2el": request.e2el, "tpot": 0.0 if math.isnan(request.tpot) else request.tpot}
    return all(values[name] * 1000 <= limit for name, limit in limits.items())


def summary(
    run: LoadRun, *, percentiles: Sequence[float] = (50, 90, 99), goodput: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The run as numbers under the JSON keys of `vllm bench serve`: `mean_ttft_ms`, `p99_itl_ms`, ...

    Percentiles interpolate linearly between order statistics (numpy's default, as vLLM's). Latencies of a run without
    completed requests are NaN, not 0.
    """
    done, duration = run.completed, run.duration
    per_second = 1 / duration if duration else 0.0
    values = {
        "duration": duration,
        "completed": len(done),
        "failed": len(run.failed),
        "total_input_tokens": run.input_tokens,
        "total_output_tokens": run.output_tokens,
        "request_throughput": len(done) * per_second,
        "output_throughput": run.output_throughput,
        "total_token_throughput": (run.input_tokens + run.output_tokens) * per_second,
        "max_concurrency": run.concurrency,
    }
    if goodput is not None:
        values["request_goodput"] = run.goodput(goodput)
    latencies = {
        "ttft": [request.ttft for request in done],
        "tpot": [request.tpot for request in done if not math.isnan(request.tpot)],
        "itl": [gap for request in done for gap in request.itl],
        "e2el": [request.e2el for request in done],
    }
    for name, seconds in latencies.items():
        values |= _spread(name, seconds, percentiles)
    return values


def _spread(name: str, seconds: Iterable[float], percentiles: Sequence[float]) -> dict[str, float]:
    values = np.array(list(seconds)) * 1000
    if not len(values):
        values = np.array([math.nan])
    named = {f"p{point:g}_{name}_ms": float(np.percentile(values, point)) for point in percentiles}
    return {
        f"mean_{name}_ms": float(np.mean(values)),
        f"median_{name}_ms": float(np.median(values)),
        f"std_{name}_ms": float(np.std(values)),
        **named,
    }
