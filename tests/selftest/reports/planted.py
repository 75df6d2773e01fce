"""Secrets to plant, each with the same mark in it, and servers that give away what they know of them."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

MARK = "Zq9xw"
"""Of any part of a secret that got out."""
KEY = f"sk-{MARK}-0123456789"
TOKEN = f"hf_{MARK}\"9xw\\token/with?signs'"
PASSWORD = f"p@ss:{MARK}"
PASSWORD_IN_URL = f"p%40ss%3A{MARK}"
ARGUMENT = f"{MARK}-on-the-command-line"
ENVIRONMENT = {"GLM5_API_KEY": KEY, "PLANTED_TOKEN": TOKEN, "VLLM_PROXY_URL": f"http://proxy:{MARK}@proxy.example:3128"}
BEARER = f"Bearer {KEY}"
BASIC = f"Basic {base64.b64encode(f'somebody:{PASSWORD}'.encode()).decode()}"

TALKATIVE_SERVER = f"""
import os, sys, time
print("starting", dict(os.environ), flush=True)
print("non-default args:", sys.argv[1:], flush=True)
print("Authorization: Bearer " + os.environ["GLM5_API_KEY"], file=sys.stderr, flush=True)
sys.stdout.write("loading {MARK[:3]}")
sys.stdout.flush()
time.sleep(0.2)
sys.stdout.write("{MARK[3:]}-on-the-command-line\\r")
print(sys.argv[2].encode(), os.environ["PLANTED_TOKEN"].split("/"), flush=True)
sys.exit("RuntimeError: cannot log in with " + sys.argv[2])
"""
"""Prints everything it was given, one secret in two writes, and ends."""


class Handler(BaseHTTPRequestHandler):
    """vLLM's routes, as far as a golden needs them, with secrets wherever a server could have some."""

    authorizations: list[str]

    def do_GET(self) -> None:
        answers = {
            "/v1/models": {"data": [{"id": "glm5", "max_model_len": 512}]},
            "/version": {"version": "0.32.0"},
            "/server_info": {
                "vllm_config": {
                    "model_config": {"hf_token": TOKEN, "model": f"https://u:{MARK}@hub.example/glm5"},
                    "kv_transfer_config": [{"api_key": KEY}, {"extra": {"proxy": ENVIRONMENT["VLLM_PROXY_URL"]}}],
                },
                "vllm_env": {"VLLM_API_KEY": KEY, "VLLM_PROXY_URL": ENVIRONMENT["VLLM_PROXY_URL"], "VLLM_PORT": 1},
                "system_env": {"env_vars": f"PLANTED_TOKEN={TOKEN}"},
            },
        }
        self.reply(answers.get(self.path.partition("?")[0]))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.authorizations.append(self.headers["Authorization"])
        if self.path != "/v1/completions":
            self.reply({"error": f"{self.headers['Authorization']} may not do this"}, status=403)
            return
        scored = [{str(token): {"logprob": -1.0}} for token in body["prompt"]]
        choice = {
            "text": "x",
            "finish_reason": "length",
            "logprobs": {"tokens": ["token_id:7"], "token_logprobs": [-1.0], "top_logprobs": [{"token_id:7": -1.0}]},
            "prompt_logprobs": [None, *scored[1:]] if "prompt_logprobs" in body else None,
        }
        self.reply({"choices": [choice]})

    def reply(self, answer: object, status: int = 200) -> None:
        body = json.dumps(answer).encode()
        self.send_response(404 if answer is None else status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not into the output of the tests."""


@contextlib.contextmanager
def stub() -> Iterator[tuple[str, list[str]]]:
    """A server on a free port: its `host:port`, and the authorisations that it was sent so far."""
    handler = type("Own", (Handler,), {"authorizations": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", handler.authorizations
    finally:
        server.shutdown()
        server.server_close()


def leaks(directory: Path) -> list[str]:
    """Lines of any file below `directory` that hold a part of a secret."""
    found = []
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            lines = data.decode("utf-8", "replace").splitlines()
            found += [f"{path.name}: {line[:300]}" for line in lines if MARK in line or BASIC[6:] in line]
    return found
