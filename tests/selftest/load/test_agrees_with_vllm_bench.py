"""Our load client and `vllm bench serve`, in turns on one server, measure the same.

pytest tests/selftest/load/test_agrees_with_vllm_bench.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from glm5check.records import Finding, Measurement, Outcome
from glm5check.serving.launch import Server
from glm5check.serving.load import Load, run_load
from glm5check.serving.stub import MODEL, Behaviour, running
from glm5check.serving.timing import summary
from glm5check.settings import Settings
from tests.selftest.load.judged import Progress, judged, medians

LOOKS = (120, 240, 480, 720)
"""Pairs after which to ask whether all is decided. Neighbouring runs of the embedded server differ by 5 to 10 % on two
shared cores however long they are, so there are many and short ones."""
ANSWER_S = 1.0
"""How long an answer lasts. On an idle machine vLLM's client has its first token 1 ms later than ours, on four streams
4 ms, which a much shorter answer would show as another speed; TTFT is printed to show it."""
MOST_TOKENS = 384
"""In an answer of a fast server: the embedded model has a context of 512."""
STUB_LOOKS, STUB_REQUESTS, STUB_TOKENS = (16,), 2, 64
METRICS = ("output_throughput", "mean_tpot_ms", "mean_e2el_ms")
Numbers = dict[str, float]


class VllmBench:
    """The process beside this file.

    Its prompts are token ids, as ours are: with text the server would tokenise within one client's clock only. Of the
    data sets of `vllm bench serve`, traces are the one that sends ids.
    """

    def __init__(self, process: subprocess.Popen[str], tokenizer: str, trace: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.asked, self.answers = process.stdin, process.stdout
        self.tokenizer, self.trace = tokenizer, trace
        json.loads(self.answers.readline())

    def run(self, base_url: str, load: Load) -> Numbers:
        """Prompts are random ids that follow from `hash_ids`, one a prompt; all is sent at once (`--no-self-timed`)."""
        first = load.seed * load.requests
        requests = [
            {"timestamp": 0, "hash_ids": [name], "input_length": load.input_tokens, "output_length": load.output_tokens}
            for name in range(first, first + load.requests)
        ]
        self.trace.write_text("".join(f"{json.dumps(request)}\n" for request in requests))
        arguments = [
            *("--backend", "openai", "--base-url", base_url, "--model", load.model, "--tokenizer", self.tokenizer),
            *("--dataset-name", "timed_trace", "--dataset-path", str(self.trace), "--no-self-timed"),
            *("--timed-trace-chunk-hash-size", str(load.input_tokens), "--ignore-eos", "--temperature", "0"),
            *("--num-prompts", str(load.requests), "--max-concurrency", str(load.concurrency)),
            *("--percentile-metrics", "ttft,tpot,itl,e2el", "--disable-tqdm"),
            *("--extra-body", json.dumps({"return_token_ids": True})),
        ]
        print(json.dumps(arguments), file=self.asked, flush=True)
        answer: Numbers = json.loads(self.answers.readline())
        return answer


@pytest.fixture(scope="module")
def vllm_bench(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmBench]:
    script = Path(__file__).with_name("vllm_bench.py")
    directory = tmp_path_factory.mktemp("bench")
    pipe = subprocess.PIPE
    # vLLM draws a prompt from Python's hash of its name, which is another one in each process unless told.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with (directory / "log").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(script)], stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment
        )
        try:
            yield VllmBench(process, str(settings.config), directory / "trace.jsonl")
        finally:
            process.kill()
            process.communicate()


def in_turns(
    vllm_bench: VllmBench, base_url: str, load: Load, looks: Sequence[int], progress: Progress
) -> list[Finding]:
    """Each metric by both clients, sample i of both taken side by side, until a look decides every metric.

    Each look prints a line of the table for each metric, and TTFT without a verdict. All requests must have completed.
    """
    ours: list[Numbers] = []
    theirs: list[Numbers] = []
    findings: list[Finding] = []
    whose = "vLLM's"
    for pair in range(looks[-1]):
        one = replace(load, seed=pair)
        # Who goes first alternates, so that neither always meets the machine as the other left it.
        for is_ours in (True, False) if pair % 2 else (False, True):
            if is_ours:
                ours.append(summary(run_load(base_url, one)))
            else:
                theirs.append(vllm_bench.run(base_url, one))
        if len(ours) in looks:
            first_tokens = [measured("mean_ttft_ms", runs, load) for runs in (ours, theirs)]
            progress(f"{medians(*first_tokens, whose)}, not judged")
            findings = [
                judged(measured(name, ours, load), measured(name, theirs, load), whose, progress) for name in METRICS
            ]
            if Outcome.INCONCLUSIVE not in {finding.outcome for finding in findings}:
                break
    tokens = load.requests * load.output_tokens
    assert all(numbers["total_output_tokens"] == tokens for numbers in (*ours, *theirs))
    return findings


def measured(name: str, runs: list[Numbers], load: Load) -> Measurement:
    unit = "ms" if name.endswith("_ms") else "tok/s"
    samples = tuple(float(numbers[name]) for numbers in runs)
    where = {"streams": str(load.concurrency)}
    return Measurement(name=name, unit=unit, samples=samples, higher_is_better=unit != "ms", where=where)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("streams", [1, 4])
def test_both_clients_measure_the_same_of_the_server(
    server: Server,
    vllm_bench: VllmBench,
    streams: int,
    verdict: Callable[[list[Finding]], None],
    progress: Progress,
) -> None:
    """Within 2 % by the interval of the ratio; a machine too busy to tell is inconclusive.

    `tox run -e clients` serves on one rank, which leaves the other of two cores to the clients.
    """
    load = Load(model=server.model, concurrency=streams, requests=streams)
    tpot = summary(run_load(server.base_url, replace(load, warmup=1)))["mean_tpot_ms"]
    load = replace(load, output_tokens=min(MOST_TOKENS, round(1000 * ANSWER_S / tpot)))
    verdict(in_turns(vllm_bench, server.base_url, load, LOOKS, progress))


@pytest.mark.slow
@pytest.mark.parametrize("streams", [1, 16])
def test_both_clients_measure_the_same_of_the_stub(
    vllm_bench: VllmBench,
    streams: int,
    verdict: Callable[[list[Finding]], None],
    progress: Progress,
) -> None:
    """The stub keeps its pace, so the clients' own difference shows also where a real server is too restless."""
    load = Load(model=MODEL, concurrency=streams, requests=STUB_REQUESTS * streams, output_tokens=STUB_TOKENS)
    with running(Behaviour(step_ms=20)) as url:
        findings = in_turns(vllm_bench, url, load, STUB_LOOKS, progress)
    verdict(findings)
