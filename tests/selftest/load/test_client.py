"""The load client against the stub: what it sends, what it counts, how fast it is itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from glm5check.errors import OptionError
from glm5check.serving.load import Load, run_load
from glm5check.serving.stub import MODEL, Behaviour, running

STREAMS = 64
PACE = 50_000
"""Tokens a second over all streams: far above any server that is measured with this."""


def test_its_own_limit_is_above_50_000_tokens_a_second(progress: Callable[[str], None]) -> None:
    """The limit is tokens over CPU seconds of the client: a busy machine stretches these far less than wall time.

    Measured: 123,000 (in a whole CI run) to 208,000 tok/s a core.
    """
    with running(Behaviour(step_ms=1000 * STREAMS / PACE)) as url:
        run = run_load(url, Load(model=MODEL, concurrency=STREAMS, requests=STREAMS, output_tokens=800))
    assert not run.failed
    limit = run.output_tokens / run.client_cpu
    progress(
        f"load client: {run.output_throughput:,.0f} of {PACE:,} tok/s paced by the stub over {STREAMS} streams,"
        f" own limit {limit:,.0f} tok/s a core"
    )
    assert limit > PACE


def test_every_token_of_a_chunk_gets_a_time() -> None:
    with running(Behaviour(step_ms=2, chunk=4)) as url:
        run = run_load(url, Load(model=MODEL, output_tokens=42))
    [request] = run.requests
    assert not request.error
    assert len(request.arrivals) == request.output_tokens == 42
    assert sum(gap > 0 for gap in request.itl) <= 10
    assert math.isclose(sum(request.itl) / 41, request.tpot)


def test_concurrency_is_never_exceeded_and_all_requests_are_sent() -> None:
    with running(Behaviour(step_ms=2)) as url:
        run = run_load(url, Load(model=MODEL, concurrency=3, requests=9, output_tokens=10, warmup=1))
    assert len(run.completed) == 9
    edges = sorted(
        [(request.sent, 1) for request in run.requests]
        + [(request.sent + request.e2el, -1) for request in run.requests]
    )
    open_now = most = 0
    for _, change in edges:
        open_now += change
        most = max(most, open_now)
    assert 1 < most <= 3


def test_requests_at_a_rate_are_spread_over_time() -> None:
    load = Load(model=MODEL, concurrency=50, requests=20, output_tokens=1, request_rate=100.0)
    with running(Behaviour(step_ms=1)) as url:
        run = run_load(url, load)
    sent = [request.sent for request in run.requests]
    planned = sum(gap for gap, _ in zip(load.gaps(), range(19), strict=False))
    assert sent[-1] - sent[0] >= planned * 0.95


def test_prompts_follow_the_seed_and_share_what_they_should() -> None:
    load = Load(model=MODEL, requests=3, input_tokens=20, shared_prefix=12, seed=4)
    prompts = list(load.prompts())
    assert prompts == list(load.prompts())
    assert all(len(prompt) == 20 and prompt[:12] == prompts[0][:12] for prompt in prompts)
    assert len({tuple(prompt[12:]) for prompt in prompts}) == 3
    assert prompts != list(Load(model=MODEL, requests=3, input_tokens=20, shared_prefix=12, seed=5).prompts())


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"output_tokens": 0}, {"shared_prefix": 33}, {"request_rate": 0.0}, {"requests": 0}]
)
def test_a_load_that_cannot_be_sent_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(OptionError, match="this load cannot be sent"):
        Load(model=MODEL, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="no URL of a server"):
        run_load(url, Load(model=MODEL))


def test_a_server_that_hangs_is_given_up_on() -> None:
    with running(Behaviour(step_ms=60_000)) as url:
        run = run_load(url, Load(model=MODEL, timeout_s=0.3))
    assert run.requests[0].error == "no complete answer after 0.3 s"
