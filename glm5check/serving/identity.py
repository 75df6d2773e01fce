"""The fingerprint of a server that somebody else started, from what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping

from glm5check import fingerprint
from glm5check.errors import ServerError
from glm5check.fingerprint import Fingerprint
from glm5check.serving.client import Client
from glm5check.serving.metrics import STARTED, parse_metrics


def attached_fingerprint(client: Client, *, model: Mapping[str, str]) -> Fingerprint:
    """Ask `client`'s server when it started, its version and its configuration; what it does not offer stays unknown.

    `model` says what is served, as in `glm5check.fingerprint.of_attached`.
    """
    return fingerprint.of_attached(
        client.base_url, started=_started(client), version=client.version(), info=_info(client), model=model
    )


def _started(client: Client) -> float | None:
    try:
        return parse_metrics(client.metrics()).values.get(STARTED)
    except ServerError:
        return None


def _info(client: Client) -> dict[str, object]:
    try:
        return client.server_info()
    except ServerError:
        return {}
