"""Fingerprints: equal runs join, different ones are refused with the differing keys, secrets never get in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from glm5check import fingerprint
from glm5check.errors import FingerprintError, ServerError
from glm5check.fingerprint import Fingerprint
from glm5check.nvml import reason_names
from glm5check.records import GpuState
from glm5check.redaction import REDACTED

MODEL = {"name": "tiny.gguf", "digest": "ab12"}
GPU = GpuState(
    index=0,
    name="NVIDIA H200",
    driver="580.1",
    sm_clock=1200,
    sm_clock_max=1980,
    memory_clock=3201,
    memory_clock_max=3201,
    throttle_reasons=("sw_power_cap",),
)


@pytest.fixture
def process() -> Iterator[int]:
    environment = {**os.environ, "NCCL_PROTO": "LL", "VLLM_API_KEY": "sesame", "HOME_OF_NOBODY": "x"}
    command = [sys.executable, "-c", "import time; time.sleep(60)", "--api-key", "sesame", "--hf-token=sesame"]
    running = subprocess.Popen(command, env=environment)
    yield running.pid
    running.kill()
    running.wait()


def test_one_process_fingerprints_equal(process: int) -> None:
    first, second = fingerprint.of_process(process, model=MODEL), fingerprint.of_process(process, model=MODEL)
    assert fingerprint.join(first, second).identity == first.identity
    assert first.digest == second.digest


def test_environment_and_command_are_in_without_their_secrets(process: int) -> None:
    facts = fingerprint.of_process(process, model=MODEL, faults=["slow_decode"]).identity
    assert facts["environment.NCCL_PROTO"] == "LL"
    assert facts["environment.VLLM_API_KEY"] == REDACTED
    assert "environment.HOME_OF_NOBODY" not in facts
    assert facts["faults"] == "slow_decode"
    assert facts["version.python"]
    assert "sesame" not in str(facts)
    assert f"--api-key {REDACTED} --hf-token={REDACTED}" in facts["process.command"]


@pytest.mark.parametrize(
    "changed",
    ["process.started", "process.command", "environment.NCCL_PROTO", "version.vllm", "model.digest", "commit"],
)
def test_every_changed_fact_is_refused_by_name(changed: str) -> None:
    facts = dict.fromkeys(
        ["process.started", "process.command", "environment.NCCL_PROTO", "version.vllm", "model.digest", "commit"], "a"
    )
    one, two = Fingerprint(identity=facts), Fingerprint(identity={**facts, changed: "b"})
    with pytest.raises(FingerprintError, match=rf"1 facts differ:\n\s+{changed}: 'a' against 'b'"):
        fingerprint.join(one, two)


def test_a_fact_that_one_side_lacks_is_a_difference() -> None:
    with pytest.raises(FingerprintError, match=r"NCCL_ALGO: 'Ring' against '\(missing\)'"):
        fingerprint.join(Fingerprint(identity={"environment.NCCL_ALGO": "Ring"}), Fingerprint(identity={}))


def test_clocks_may_change_within_a_run() -> None:
    one = Fingerprint(identity={"process.pid": "1"}, state={"gpu.0.clocks": "1980"})
    two = Fingerprint(identity={"process.pid": "1"}, state={"gpu.0.clocks": "345"})
    assert fingerprint.join(one, two).state == {"gpu.0.clocks": "345"}


def test_a_token_limit_is_no_secret() -> None:
    facts = fingerprint.relevant_environment({"VLLM_MAX_TOKENS_PER_RANK": 8, "VLLM_HF_TOKEN": "s", "NCCL_ALGO": "Ring"})
    assert facts == {"NCCL_ALGO": "Ring", "VLLM_HF_TOKEN": REDACTED, "VLLM_MAX_TOKENS_PER_RANK": "8"}


def test_no_process_is_a_server_error() -> None:
    with pytest.raises(ServerError, match="cannot read the server's process"):
        fingerprint.of_process(2**22 + 7, model=MODEL)


def test_an_attached_server_is_fingerprinted_by_what_it_says() -> None:
    info = {"vllm_config": {"model_config": {"dtype": "bfloat16", "hf_token": "sesame"}}, "vllm_env": {"VLLM_X": 1}}
    one = fingerprint.of_attached("http://h:1", started=1.5, version="0.32.0", info=info, model=MODEL)
    again = fingerprint.of_attached("http://h:1", started=9.5, version="0.32.0", info=info, model=MODEL)
    assert one.identity["config.model_config.dtype"] == "bfloat16"
    assert "sesame" not in str(one.identity)
    assert one.differences(again) == {"process.started": ("1.500", "9.500")}


def test_gpus_are_identity_and_their_clocks_are_state(process: int) -> None:
    taken = fingerprint.of_process(process, model=MODEL, gpus=[GPU])
    assert taken.identity["gpu.0"] == "NVIDIA H200, driver 580.1"
    assert taken.identity["model.digest"] == "ab12"
    assert taken.state["gpu.0.clocks"] == "sm 1200/1980 mem 3201 MHz"
    assert taken.state["gpu.0.throttling"] == "sw_power_cap"


def test_speeds_compare_across_versions_but_not_across_machines_or_models() -> None:
    before = {"gpu.0": "H200", "gpu.0.clocks": "1980", "model.digest": "ab", "version.vllm": "0.31", "process.pid": "1"}
    fingerprint.require_same_machine(
        before, {**before, "version.vllm": "0.32", "gpu.0.clocks": "9", "process.pid": "2"}
    )
    with pytest.raises(
        FingerprintError, match=r"gpu\.1: '\(missing\)' against 'H200'; model\.digest: 'ab' against 'cd'"
    ):
        fingerprint.require_same_machine(before, {**before, "gpu.1": "H200", "model.digest": "cd"})


def test_bits_of_nvml_have_names() -> None:
    assert reason_names(0x4 | 0x40) == ("sw_power_cap", "hw_thermal_slowdown")
    assert reason_names(0x2000) == ("0x2000",)
    assert reason_names(0) == ()
