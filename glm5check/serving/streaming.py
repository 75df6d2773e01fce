"""Answers as they are streamed, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from glm5check.serving.client import Client


def stream_completion(client: Client, prompt: str, *, max_tokens: int) -> Iterator[str]:
    """The pieces of text of a greedy completion."""
    for chunk in client.stream("/v1/completions", {"prompt": prompt, "max_tokens": max_tokens}):
        for choice in chunk.get("choices") or []:
            yield str(choice.get("text") or "")


def stream_chat(client: Client, text: str, *, max_tokens: int, **options: Any) -> Iterator[str]:
    """The pieces of content of a greedy answer to one user message."""
    messages = [{"role": "user", "content": text}]
    for chunk in client.stream("/v1/chat/completions", {"messages": messages, "max_tokens": max_tokens, **options}):
        for choice in chunk.get("choices") or []:
            yield str((choice.get("delta") or {}).get("content") or "")
