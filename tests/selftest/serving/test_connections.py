"""A request that fails takes its connection with it, and no other request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from glm5check.errors import ServerError
from glm5check.serving.client import Client


class Breaking(BaseHTTPRequestHandler):
    """Answers /v1/completions with 400 and closes that connection a moment later, as vLLM does on NaN in an answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        failing = self.path == "/v1/completions"
        body = b'{"error": "nan"}' if failing else b'{"results": [{"calls": 1}]}'
        self.send_response(400 if failing else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if failing:
            time.sleep(0.02)
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def breaking() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Breaking)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_what_comes_after_a_failed_request_is_answered(breaking: str) -> None:
    with Client(breaking, "glm5") as client:
        for _ in range(20):
            with pytest.raises(ServerError, match="400"):
                client.complete("nan", (1, 2), max_tokens=1)
            assert client.collective_rpc("seen") == [{"calls": 1}]
