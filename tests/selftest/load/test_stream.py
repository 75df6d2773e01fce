"""What the client makes of answers byte by byte: cut anywhere, garbled, refused, short."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm5check.errors import ServerError
from glm5check.serving.metrics import GENERATED, SUCCEEDED, parse_metrics
from glm5check.serving.stream import Answer, decode
from glm5check.serving.timing import RequestTiming

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def frame(event: object) -> bytes:
    data = b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def token(*ids: int) -> bytes:
    return frame({"choices": [{"index": 0, "text": "x", "token_ids": list(ids)}]})


def usage(count: int) -> bytes:
    return frame({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": count}})


DONE = frame(b"[DONE]") + b"0\r\n\r\n"


def timing(*reads: tuple[float, bytes], wanted: int = 3) -> RequestTiming:
    return decode(Answer(0, 10.0, list(reads)), input_tokens=5, output_tokens=wanted)


def test_tokens_carry_the_time_of_the_read_that_completed_them() -> None:
    first = token(1)
    result = timing((10.5, HEAD), (11.0, first[:30]), (12.0, first[30:]), (13.0, token(2) + token(3) + usage(3) + DONE))
    assert result.error == ""
    assert result.arrivals == (2.0, 3.0, 3.0)
    assert (result.ttft, result.e2el, result.tpot, result.itl) == (2.0, 3.0, 0.5, (1.0, 0.0))
    assert (result.input_tokens, result.output_tokens) == (7, 3)


@given(cuts=st.lists(st.integers(0, 600), max_size=12))
def test_where_the_network_cuts_changes_no_count(cuts: list[int]) -> None:
    whole = HEAD + frame(b'{"choices":[]}') + token(1) + token(2, 3) + usage(3) + DONE
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    reads = [(11.0, whole[start:end]) for start, end in pairwise(places)]
    result = timing(*reads)
    assert (result.error, result.output_tokens) == ("", 3)


def test_a_server_without_token_ids_counts_one_a_chunk_if_its_usage_agrees() -> None:
    plain = frame({"choices": [{"index": 0, "text": "x"}]})
    assert timing((11.0, HEAD + plain * 3 + usage(3) + DONE)).error == ""
    assert timing((11.0, HEAD + plain * 2 + usage(3) + DONE)).error == "2 tokens were streamed but the usage says 3"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "the stream ended after 0 of 3 tokens, without usage"),
        (HEAD + token(1), "the stream ended after 1 of 3 tokens, without usage"),
        (HEAD + token(1) + usage(1) + DONE, "1 tokens instead of 3"),
        (HEAD + token(1, 2, 3, 4) + usage(4) + DONE, "4 tokens instead of 3"),
        (HEAD + frame({"error": {"message": "engine died"}}) + DONE, "the server reports: {'message': 'engine died'}"),
        (HEAD + frame(b"<html>") + DONE, "an event is not a completion chunk"),
        (HEAD + frame({"choices": 5}) + DONE, "an event is not a completion chunk"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", "HTTP 503: "),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the answer is no HTTP"),
    ],
)
def test_an_answer_that_is_none_is_a_failed_request_with_its_reason(answer: bytes, error: str) -> None:
    reads = [(11.0, answer)] if answer else []
    assert timing(*reads).error.startswith(error)


def test_the_first_error_is_kept() -> None:
    cut = Answer(0, 10.0, [(11.0, HEAD + token(1))], error="the connection broke: reset")
    assert decode(cut, input_tokens=5, output_tokens=3).error == "the connection broke: reset"


def test_counters_are_summed_over_engines_and_reasons() -> None:
    text = (
        "# TYPE vllm:generation_tokens_total counter\n"
        'vllm:generation_tokens_total{engine="0"} 5.0\nvllm:generation_tokens_total{engine="1"} 7.0\n'
    )
    before, after = parse_metrics(""), parse_metrics(text)
    assert after.since(before, GENERATED) == 12
    assert after.since(before, SUCCEEDED) is None


def test_an_answer_that_is_no_metrics_is_a_server_error() -> None:
    with pytest.raises(ServerError, match="not in Prometheus' text format"):
        parse_metrics("<html><body>404</body></html>")
