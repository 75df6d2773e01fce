"""How evidence is taken on a live server, rehearsed on one that plays back a recording."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import DATA, traces
from glm5check.checks import graphs
from glm5check.errors import TraceError
from glm5check.evidence import GraphMode
from glm5check.records import Outcome
from glm5check.serving.launch import Server
from glm5check.tolerances import NCCL_QUIET_STEPS

CALL = (
    "vm:1:1 [0] NCCL INFO {}: opCount 0 sendbuff 0x1 recvbuff 0x2 count 256 datatype 9 comm 0x3 [nranks=2] stream 0x4\n"
)
METRICS = """\
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{{le="+Inf"}} {count}
vllm:inter_token_latency_seconds_sum {total}
vllm:inter_token_latency_seconds_count {count}
"""


class PlayedBack:
    """The client of a server that leaves behind what a recorded one did: a log line a step, a trace a rank."""

    def __init__(self, recording: Path, directory: Path, *, eager: bool) -> None:
        self.recording, self.directory, self.eager = recording, directory, eager
        self.order: list[str] = []
        self.tokens = 0
        for name in ("server.log", "nccl.log"):
            text = gzip.decompress((recording / f"{name}.gz").read_bytes())
            (directory / name.replace("nccl.log", "nccl.vm.1.log")).write_bytes(text)
        (directory / "nccl.vm.2.log").write_text("vm:2:2 [0] NCCL INFO a probe without a communicator\n")

    def complete(self, name: str, prompt: str, *, max_tokens: int, **options: Any) -> None:
        assert options["ignore_eos"]
        self.order.append(f"generate {max_tokens}")
        self.tokens += max_tokens
        with (self.directory / "nccl.vm.1.log").open("a") as log:
            for _ in range(max_tokens):
                log.write(CALL.format("AllReduce") * (17 if self.eager else 0) + CALL.format("AllGather"))

    def metrics(self) -> str:
        self.order.append("metrics")
        return METRICS.format(total=0.003 * self.tokens, count=self.tokens)

    def server_info(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(gzip.decompress((self.recording / "server_info.json.gz").read_bytes()))
        return answer

    def post(self, path: str, *, limit_s: float) -> None:
        self.order.append(path)
        if path == "/stop_profile":
            for rank in (0, 1):
                source = self.recording / f"rank{rank}.pt.trace.json.gz"
                target = self.directory / "profile" / f"dp0_pp0_tp{rank}_dcp0_ep{rank}_rank{rank}.17.pt.trace.json.gz"
                shutil.copy(source, target)
                target.touch()


def played_back(name: str, directory: Path, *, eager: bool = False) -> Server:
    (directory / "profile").mkdir()
    client: Any = PlayedBack(DATA / "graphs" / name, directory, eager=eager)
    return Server(
        base_url="http://played.back",
        model="glm5",
        client=client,
        device="gpu",
        ranks=2,
        log_path=directory / "server.log",
        profile_dir=directory / "profile",
        nccl_log_pattern=str(directory / "nccl.%h.%p.log"),
    )


@pytest.fixture(autouse=True)
def a_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "take_fingerprint", lambda server, settings: SimpleNamespace(identity={"a": "1"}))


def record(server: Server) -> traces.Recording:
    settings: Any = SimpleNamespace()
    return traces.record(server, settings, progress=lambda line: None)


def test_everything_is_taken_in_order(tmp_path: Path) -> None:
    """Warm-up, then what is measured without a profiler, then the profile, and nothing after it."""
    server = played_back("full", tmp_path)
    recording = record(server)
    client: Any = server.client
    assert client.order == [
        "generate 24",
        *["metrics", f"generate {NCCL_QUIET_STEPS + 2}", "metrics"] * traces.UNPROFILED_REQUESTS,
        "/start_profile",
        "generate 24",
        "/stop_profile",
    ]
    assert [trace.rank for trace in recording.ranks] == [0, 1]
    assert {step.mode for trace in recording.ranks for step in trace.steady} == {GraphMode.FULL}
    assert recording.inter_token_us == pytest.approx(3000)
    assert recording.fingerprint == {"a": "1"}
    assert [(log.all_reduces, log.all_gathers) for log in recording.nccl] == [
        (0, traces.UNPROFILED_REQUESTS * (NCCL_QUIET_STEPS + 2))
    ]
    assert graphs.nccl_was_silent(recording, steps=NCCL_QUIET_STEPS)[0].outcome is Outcome.PASSED


def test_one_stall_does_not_lengthen_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured once on an H200: 4.08 ms between the tokens of one request on a server that decoded 480 tok/s."""
    stalls = iter([0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    usual = PlayedBack.metrics
    monkeypatch.setattr(PlayedBack, "metrics", lambda self: _plus(usual(self), next(stalls)), raising=True)
    assert record(played_back("full", tmp_path)).inter_token_us == pytest.approx(3000)


def _plus(metrics: str, seconds: float) -> str:
    """The same counters with so many seconds more between tokens."""
    return re.sub(r"(?m)^(\S+_sum) (\S+)$", lambda found: f"{found[1]} {float(found[2]) + seconds}", metrics)


def test_an_eager_server_is_heard(tmp_path: Path) -> None:
    recording = record(played_back("eager", tmp_path, eager=True))
    assert graphs.nccl_was_silent(recording, steps=NCCL_QUIET_STEPS)[0].outcome is Outcome.FAILED
    assert graphs.all_reduces_are_in_graphs(recording)[0].outcome is Outcome.FAILED


def test_a_profiler_that_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older profile in the directory is not taken for the one that is missing."""
    server = played_back("full", tmp_path)
    record(server)
    monkeypatch.setattr(PlayedBack, "post", lambda self, path, *, limit_s: None)
    monkeypatch.setattr(traces.time, "time", lambda: 2e10)
    with pytest.raises(TraceError, match="the profiler wrote no trace"):
        record(server)


def test_the_profiler_is_stopped_when_the_request_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = played_back("full", tmp_path)
    client: Any = server.client

    def complete(name: str, prompt: str, *, max_tokens: int, **options: Any) -> None:
        if "/start_profile" in client.order:
            raise TraceError("the server died")

    monkeypatch.setattr(client, "complete", complete)
    with pytest.raises(TraceError, match="died"):
        record(server)
    assert client.order[-1] == "/stop_profile"
