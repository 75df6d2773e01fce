"""Goldens survive the way to a file and back, and are refused for another model, broken, or without a finite answer."""

import json
import math
from dataclasses import replace

import pytest

from glm5check.errors import FingerprintError, SetupError, UnsupportedError
from glm5check.oracles import golden
from glm5check.records import Generation, Scores, TokenChoice

DIGEST = "ab" * 32


@pytest.fixture
def scores():
    tokens = (TokenChoice(5, -0.25, {5: -0.25, 6: -1.5}), TokenChoice(7, -0.5, {7: -0.5, 8: -math.inf}))
    return Scores(prompt="p", prompt_ids=(4, 5, 7), tokens=tokens)


@pytest.fixture
def generation():
    tokens = tuple(TokenChoice(i, -0.1, {i: -0.1}) for i in (9, 10, 11))
    return Generation(prompt="g", prompt_ids=(1, 2), tokens=tokens, text="abc", finish_reason="stop")


@pytest.fixture
def path(tmp_path, scores, generation):
    path = tmp_path / "golden.json"
    golden.write(path, [scores], [generation], model_digest=DIGEST, fingerprint={"version.vllm": "0.32.0"})
    return path


def test_what_was_written_is_read(path, scores, generation):
    oracle = golden.GoldenOracle(path, model_digest=DIGEST)
    assert oracle.fingerprint == {"version.vllm": "0.32.0"}
    assert oracle.score("p", (4, 5, 7)) == scores
    assert oracle.generate("g", (1, 2), max_tokens=3) == generation
    cut = oracle.generate("g", (1, 2), max_tokens=2)
    assert (cut.ids, cut.finish_reason) == ((9, 10), "length")
    assert json.loads(path.read_text())["scores"][0]["nll"] == 0.75


def test_another_model_is_refused(path):
    with pytest.raises(FingerprintError, match="recorded of model abababababababab"):
        golden.GoldenOracle(path, model_digest="cd" * 32)


def test_what_was_not_recorded_is_inconclusive(path):
    oracle = golden.GoldenOracle(path, model_digest=DIGEST)
    with pytest.raises(UnsupportedError, match="does not hold other"):
        oracle.score("other", (4, 5))
    with pytest.raises(UnsupportedError, match="record it again"):
        oracle.generate("g", (1,), max_tokens=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[: len(data) // 2], "no golden"),
        (lambda data: b"[]", "no golden"),
        (lambda data: data.replace(b'"format":1', b'"format":9'), "format 9"),
        (lambda data: data.replace(b"[5,6]", b"[5]"), "differ in number"),
        (lambda data: data.replace(b'"prompt_ids":[4,5,7]', b'"prompt_ids":[4,5,7,8]'), "differ in number"),
    ],
)
def test_a_broken_file_is_told_in_a_sentence(change, message, path):
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SetupError, match=message):
        golden.GoldenOracle(path, model_digest=DIGEST)


def test_a_missing_file_is_told_in_a_sentence(tmp_path):
    with pytest.raises(SetupError, match="cannot read the golden"):
        golden.GoldenOracle(tmp_path / "none.json", model_digest=DIGEST)


def test_a_server_that_says_nan_is_not_recorded(tmp_path, scores):
    spoiled = replace(scores, tokens=(TokenChoice(5, math.nan), scores.tokens[1]))
    for record in (spoiled, replace(scores, tokens=(), error="HTTP 500")):
        with pytest.raises(SetupError, match="no finite answer"):
            golden.write(tmp_path / "g.json", [record], [], model_digest=DIGEST, fingerprint={})
