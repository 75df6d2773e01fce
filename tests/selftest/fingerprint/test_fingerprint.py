"""Fingerprints: equal runs join, different ones are refused with the differing keys, secrets never get in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from glm5check import fingerprint
from glm5check.errors import CheckpointError, FingerprintError, ServerError
from glm5check.fingerprint import Fingerprint


@pytest.fixture
def process() -> Iterator[int]:
    environment = {**os.environ, "NCCL_PROTO": "LL", "VLLM_API_KEY": "sesame", "HOME_OF_NOBODY": "x"}
    command = [sys.executable, "-c", "import time; time.sleep(60)", "--api-key", "sesame", "--hf-token=sesame"]
    running = subprocess.Popen(command, env=environment)
    yield running.pid
    running.kill()
    running.wait()


def test_one_process_fingerprints_equal(process: int) -> None:
    first, second = fingerprint.of_process(process), fingerprint.of_process(process)
    assert fingerprint.join(first, second).identity == first.identity
    assert first.digest == second.digest


def test_environment_and_command_are_in_without_their_secrets(process: int) -> None:
    facts = fingerprint.of_process(process, faults=["slow_decode"]).identity
    assert facts["environment.NCCL_PROTO"] == "LL"
    assert facts["environment.VLLM_API_KEY"] == fingerprint.REDACTED
    assert "environment.HOME_OF_NOBODY" not in facts
    assert facts["faults"] == "slow_decode"
    assert facts["version.python"]
    assert "sesame" not in str(facts)
    assert f"--api-key {fingerprint.REDACTED} --hf-token={fingerprint.REDACTED}" in facts["process.command"]


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
    assert facts == {"NCCL_ALGO": "Ring", "VLLM_HF_TOKEN": fingerprint.REDACTED, "VLLM_MAX_TOKENS_PER_RANK": "8"}


def test_the_digest_sees_name_size_head_and_tail(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    digests = set()
    for content in (b"GGUF" + bytes(100), b"GGUF" + bytes(101), b"GGUG" + bytes(100), b"GGUF" + bytes(99) + b"x"):
        path.write_bytes(content)
        digests.add(fingerprint.model_digest([path]))
    assert len(digests) == 4


def test_a_missing_file_of_a_set_is_named(tmp_path: Path) -> None:
    (tmp_path / "m-00001-of-00003.gguf").touch()
    (tmp_path / "m-00003-of-00003.gguf").touch()
    with pytest.raises(CheckpointError, match=r"1 of 3 files .* m-00002-of-00003\.gguf"):
        fingerprint.model_files(tmp_path / "m-00001-of-00003.gguf")


def test_no_process_is_a_server_error() -> None:
    with pytest.raises(ServerError, match="cannot read the server's process"):
        fingerprint.of_process(2**22 + 7)


def test_an_attached_server_is_fingerprinted_by_what_it_says() -> None:
    info = {"vllm_config": {"model_config": {"dtype": "bfloat16", "hf_token": "sesame"}}, "vllm_env": {"VLLM_X": 1}}
    one = fingerprint.of_attached("http://h:1", started=1.5, version="0.32.0", info=info)
    again = fingerprint.of_attached("http://h:1", started=9.5, version="0.32.0", info=info)
    assert one.identity["config.model_config.dtype"] == "bfloat16"
    assert "sesame" not in str(one.identity)
    assert one.differences(again) == {"process.started": ("1.500", "9.500")}
