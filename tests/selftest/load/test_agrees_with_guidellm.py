"""Our load client and guidellm, in turns on one server that keeps its pace, measure the same.

tox run -e clients

guidellm needs other versions of what vLLM needs, so it lives in an environment of its own; GUIDELLM is its command.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from glm5check.records import Finding, Measurement
from glm5check.serving.load import Load, run_load
from glm5check.serving.stub import MODEL, Behaviour, running
from glm5check.serving.timing import summary
from glm5check.settings import Settings
from tests.selftest.load.judged import Progress, judged

PAIRS = 9
REQUESTS = 6
LIMIT_S = 180
METRICS = {"mean_itl_ms": "inter_token_latency_ms", "mean_e2el_ms": "request_latency"}
"""Ours and theirs. TTFT of a stub is its own first step, of which a few milliseconds are the client's."""
MILLISECONDS = {"inter_token_latency_ms": 1.0, "request_latency": 1000.0}


@pytest.fixture(scope="module")
def guidellm() -> str:
    command = os.environ.get("GUIDELLM", "")
    if not command:
        pytest.skip("inconclusive: guidellm is not here; `tox run -e clients` installs it beside")
    return command


def theirs(guidellm: str, base_url: str, tokenizer: str, out: Path) -> dict[str, float]:
    arguments = [
        *("--backend", f"kind=openai_http,target={base_url},request_format=/v1/completions"),
        *("--profile", "kind=synchronous", "--constraint", f"kind=max_requests,count={REQUESTS}"),
        *("--tokenizer", f"kind=huggingface_auto,model={tokenizer}"),
        *("--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=64"),
        *("--output", f"kind=json,path={out}", "--disable-console"),
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(
        [guidellm, "run", *arguments], check=True, timeout=LIMIT_S, env=environment, stderr=subprocess.DEVNULL
    )
    [benchmark] = json.loads(out.read_text())["benchmarks"]
    metrics = {name: benchmark["metrics"][name]["successful"] for name in METRICS.values()}
    assert metrics["request_latency"]["count"] == REQUESTS
    return {name: MILLISECONDS[name] * values["mean"] for name, values in metrics.items()}


@pytest.mark.slow
def test_both_clients_measure_the_same(
    guidellm: str,
    settings: Settings,
    tmp_path: Path,
    verdict: Callable[[list[Finding]], None],
    progress: Progress,
) -> None:
    """Within 2 % by the interval of the ratio, for the time between tokens and for whole requests."""
    pairs = []
    with running(Behaviour(step_ms=20)) as url:
        load = Load(model=MODEL, concurrency=1, requests=REQUESTS, input_tokens=32, output_tokens=64)
        for number in range(PAIRS):
            ours = summary(run_load(url, load))
            pairs.append((ours, theirs(guidellm, url, str(settings.config), tmp_path / f"{number}.json")))
    findings = []
    for name, other in METRICS.items():
        both = [
            Measurement(name=name, unit="ms", samples=samples, higher_is_better=False)
            for samples in (tuple(pair[0][name] for pair in pairs), tuple(pair[1][other] for pair in pairs))
        ]
        findings.append(judged(*both, "guidellm's", progress))
    verdict(findings)
