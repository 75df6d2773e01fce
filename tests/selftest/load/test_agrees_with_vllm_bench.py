"""Our load client and `vllm bench serve`, in turns on one server, measure the same.

pytest tests/selftest/load/test_agrees_with_vllm_bench.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from glm5check.checks import throughput
from glm5check.records import Finding, Measurement
from glm5check.serving.launch import Server
from glm5check.serving.load import Load, run_load
from glm5check.serving.timing import summary
from glm5check.settings import Settings

PAIRS = 24
REQUESTS = 4
METRICS = {"output_throughput": "tok/s", "mean_tpot_ms": "ms", "mean_e2el_ms": "ms"}
Numbers = dict[str, float]


class VllmBench:
    """The process beside this file."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.asked, self.answers = process.stdin, process.stdout
        json.loads(self.answers.readline())

    def run(self, *arguments: str) -> Numbers:
        print(json.dumps(arguments), file=self.asked, flush=True)
        answer: Numbers = json.loads(self.answers.readline())
        return answer


@pytest.fixture(scope="module")
def vllm_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmBench]:
    script = Path(__file__).with_name("vllm_bench.py")
    log = tmp_path_factory.mktemp("bench") / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            yield VllmBench(process)
        finally:
            process.kill()
            process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 4])
def test_both_clients_measure_the_same(
    server: Server,
    settings: Settings,
    vllm_bench: VllmBench,
    concurrency: int,
    verdict: Callable[[list[Finding]], None],
    progress: Callable[[str], None],
) -> None:
    """Within 2 % by the interval of the ratio; a machine too busy to tell is inconclusive."""
    theirs_of = [
        *("--backend", "openai", "--base-url", server.base_url, "--model", server.model),
        *("--tokenizer", str(settings.config), "--dataset-name", "random", "--random-input-len", "32"),
        *("--random-output-len", "64", "--num-prompts", str(REQUESTS * concurrency), "--temperature", "0"),
        *("--max-concurrency", str(concurrency), "--ignore-eos", "--disable-tqdm"),
    ]
    ours, theirs = [], []
    for pair in range(PAIRS):
        load = Load(
            model=server.model,
            concurrency=concurrency,
            requests=REQUESTS * concurrency,
            input_tokens=32,
            output_tokens=64,
            seed=1000 + pair,
        )
        # Who goes first alternates, so that neither always meets the machine as the other left it.
        order = [lambda load=load: ours.append(summary(run_load(server.base_url, load)))]
        order.append(lambda pair=pair: theirs.append(vllm_bench.run(*theirs_of, "--seed", str(pair))))
        for measure in order if pair % 2 else reversed(order):
            measure()
    assert all(numbers["completed"] == REQUESTS * concurrency for numbers in (*ours, *theirs))
    findings = []
    for name, unit in METRICS.items():
        both = [
            Measurement(
                name=name,
                unit=unit,
                samples=tuple(float(numbers[name]) for numbers in side),
                higher_is_better=unit != "ms",
                where={"streams": str(concurrency), "client": client},
            )
            for client, side in (("glm5check", ours), ("vllm bench serve", theirs))
        ]
        medians = [float(np.median(one.samples)) for one in both]
        [finding] = throughput.clients_agree(*both)
        progress(f"{concurrency} streams, {name}: {medians[0]:.4g} ours, {medians[1]:.4g} vLLM's: {finding.got}")
        findings.append(finding)
    verdict(findings)
