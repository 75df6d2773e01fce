"""Saved answers of a server, whole, short and broken."""

from __future__ import annotations

import gzip
import json

import pytest

from glm5check.errors import TraceError
from glm5check.evidence import ServerInfo
from glm5check.trace import answers
from glm5check.trace.answers import read_fingerprint, read_inter_token_us, read_server_info, server_info

WHOLE = {
    "vllm_config": {
        "compilation_config": {"cudagraph_mode": [2, 1]},
        "model_config": {"enforce_eager": False},
        "parallel_config": {"tensor_parallel_size": 8, "disable_custom_all_reduce": True},
    },
    "system_env": {"vllm_version": "0.24.0"},
}


@pytest.fixture
def write(tmp_path):
    """`write("a.txt", "text")`: a file with this text, packed if its name says so."""

    def make(name, text):
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return make


def test_everything_that_is_used_is_read(write):
    found = ServerInfo(
        source="info.json.gz",
        version="0.24.0",
        requested_mode="FULL_AND_PIECEWISE",
        enforce_eager=False,
        tensor_parallel=8,
        custom_all_reduce_off=True,
    )
    assert read_server_info(write("info.json.gz", json.dumps(WHOLE, indent=2))) == found


def test_what_is_not_said_is_not_known():
    assert server_info('{"vllm_config": {}}') == ServerInfo(source="/server_info")


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        (0, "NONE"),
        (1, "PIECEWISE"),
        (2, "FULL"),
        ([2, 0], "FULL_DECODE_ONLY"),
        ([2, 1], "FULL_AND_PIECEWISE"),
        ("FULL", "FULL"),
        ("2", "FULL"),
        ([1, 2], "(1, 2)"),
        (7, "7"),
        (None, None),
    ],
)
def test_modes_as_the_server_writes_them(mode, name):
    text = json.dumps({"vllm_config": {"compilation_config": {"cudagraph_mode": mode}}})
    assert server_info(text).requested_mode == name


@pytest.mark.parametrize("text", ["", "[]", '{"vllm_config": 3}', "{"])
def test_what_is_no_answer_says_so(text, write):
    with pytest.raises(TraceError) as caught:
        read_server_info(write("info.json", text))
    assert caught.value.what.startswith("not an answer of /server_info (")
    assert caught.value.where == "info.json"
    with pytest.raises(TraceError) as caught:
        server_info(text)
    assert caught.value.where == "/server_info"


@pytest.mark.parametrize(
    ("lines", "us"),
    [
        (['_sum{engine="0"} 0.5', '_count{engine="0"} 100'], 5000.0),
        (
            ['_sum{engine="0"} 0.5', '_sum{engine="1"} 1.5', '_count{engine="0"} 100', '_count{engine="1"} 100'],
            10_000.0,
        ),
        (['_sum{model_name="my model"} 0.5', '_count{model_name="my model"} 100'], 5000.0),
        (["_sum 1e-3", "_count 1.0", '_bucket{le="0.1"} 7'], 1000.0),
        (["_sum 0.0", "_count 0"], None),
        ([], None),
    ],
)
def test_the_mean_time_between_tokens(lines, us, write):
    name = "vllm:inter_token_latency_seconds"
    others = ["# HELP x y", "vllm:time_per_output_token_seconds_sum 9", "vllm:inter_token_latency_other 3"]
    text = "\n".join([*others, *(name + line for line in lines), ""])
    found = read_inter_token_us(write("metrics.txt.gz", text))
    assert found == (None if us is None else pytest.approx(us))


def test_a_metric_that_is_no_number_says_where(write):
    path = write("metrics.txt", "vllm:inter_token_latency_seconds_sum " + "x" * 50)
    with pytest.raises(TraceError) as caught:
        read_inter_token_us(path)
    assert caught.value.what == f"'{'x' * 40}' is not a metric's value"
    assert caught.value.where == str(path)


def test_a_fingerprint_is_words_by_name(write):
    assert read_fingerprint(write("f.json", '{"a": "1",\n "b": "2"}')) == {"a": "1", "b": "2"}
    with pytest.raises(TraceError) as caught:
        read_fingerprint(write("g.json", '{"a": 1}'))
    assert caught.value.what.startswith("not a fingerprint (")
    assert caught.value.where.endswith("/g.json")
    assert caught.value.do == "save it as name: value"


def test_endless_json_is_refused_at_its_bound(write, monkeypatch):
    monkeypatch.setattr(answers, "_MAX_JSON", 2 << 20)
    fitting = '{"a": "' + "x" * ((2 << 20) - 10) + '"}'
    assert len(fitting) == (2 << 20) - 1
    with pytest.raises(TraceError) as caught:
        read_fingerprint(write("f.json", fitting + " "))
    assert caught.value.what == "larger than 2 MiB"
    assert caught.value.where.endswith("/f.json")
    monkeypatch.setattr(answers, "_MAX_JSON", 8)
    assert read_fingerprint(write("f.json", "{     }")) == {}
