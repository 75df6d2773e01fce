"""Our numbers against those that `vllm bench serve` computes from the same requests."""

from __future__ import annotations

import math

import numpy as np
import pytest

from glm5check.serving.timing import LoadRun, RequestTiming, summary

PERCENTILES = (50.0, 90.0, 99.0)


def recorded_run() -> LoadRun:
    source = np.random.default_rng(1)
    requests = []
    for index in range(12):
        arrivals = np.cumsum(source.exponential(0.01, 1 + index * 3)) + 0.02
        timing = RequestTiming(
            index=index,
            sent=float(index) * 0.05,
            arrivals=tuple(arrivals),
            input_tokens=10 + index,
            output_tokens=len(arrivals),
            error="the connection broke" if index == 5 else "",
        )
        requests.append(timing)
    return LoadRun(requests=tuple(requests), concurrency=4)


def test_every_number_of_a_run_is_vllms(capsys: pytest.CaptureFixture[str]) -> None:
    from vllm.benchmarks.lib.endpoint_request_func import RequestFuncOutput
    from vllm.benchmarks.serve import calculate_metrics

    run = recorded_run()
    outputs = [
        RequestFuncOutput(
            success=not request.error,
            latency=request.e2el,
            output_tokens=request.output_tokens,
            ttft=request.ttft,
            itl=list(request.itl),
            prompt_len=request.input_tokens,
            start_time=request.sent,
            error=request.error,
        )
        for request in run.requests
    ]
    limits = {"ttft": 40.0, "e2el": 250.0, "tpot": 12.0}
    theirs, _ = calculate_metrics([], outputs, run.duration, None, list(PERCENTILES), limits)
    ours = summary(run, percentiles=PERCENTILES, goodput=limits)
    for name in ("ttft", "tpot", "itl", "e2el"):
        for kind in ("mean", "median", "std"):
            assert ours[f"{kind}_{name}_ms"] == pytest.approx(getattr(theirs, f"{kind}_{name}_ms")), (kind, name)
        for point, value in getattr(theirs, f"percentiles_{name}_ms"):
            assert ours[f"p{point:g}_{name}_ms"] == pytest.approx(value), (point, name)
    for name in ("completed", "failed", "request_throughput", "request_goodput", "output_throughput"):
        assert ours[name] == pytest.approx(getattr(theirs, name)), name
    assert ours["total_token_throughput"] == pytest.approx(theirs.total_token_throughput)
    assert ours["total_output_tokens"] == theirs.total_output


def test_goodput_refuses_a_metric_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="no such metric: itl; there are ttft, tpot, e2el"):
        recorded_run().goodput({"itl": 5.0})


def test_a_run_without_a_completed_request_has_no_latencies() -> None:
    failed = RequestTiming(index=0, sent=0.0, arrivals=(), input_tokens=1, output_tokens=0, error="gone")
    numbers = summary(LoadRun(requests=(failed,), concurrency=1))
    assert numbers["failed"] == 1
    assert numbers["output_throughput"] == 0
    assert math.isnan(numbers["median_ttft_ms"])
