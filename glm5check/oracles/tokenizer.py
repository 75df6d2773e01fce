"""The reference tokenizer and vocabulary: HF's files, and what the GGUF file says of the same things."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from glm5check.errors import CheckpointError
from glm5check.records import Vocabulary

_ADVICE: Final = "give --glm5-config the directory of GLM-5's own tokenizer"
_UNUSED: Final = 5
"""GGUF token type of padding rows."""


def gguf_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """What the keys `tokenizer.*` of a GGUF file say."""
    kinds = list(metadata.get("tokenizer.ggml.token_type", ()))
    tokens = list(metadata.get("tokenizer.ggml.tokens", ()))
    while tokens and len(kinds) >= len(tokens) and kinds[len(tokens) - 1] == _UNUSED:
        tokens.pop()
    ends = (metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom"))
    return Vocabulary(
        source="the GGUF file",
        tokens=tuple(map(str, tokens)),
        merges=tuple(map(str, metadata.get("tokenizer.ggml.merges", ()))),
        end_ids=frozenset(int(end) for end in ends if end is not None),
        begin_id=metadata.get("tokenizer.ggml.bos_token_id"),
        template=str(metadata.get("tokenizer.chat_template") or ""),
    )


def hf_vocabulary(directory: Path) -> Vocabulary:
    """What `tokenizer.json`, `generation_config.json` and the chat template of an HF directory say.

    Raises CheckpointError if a file is missing or malformed.
    """
    content = _json(directory / "tokenizer.json")
    try:
        ids: dict[str, int] = dict(content["model"]["vocab"])
        ids |= {added["content"]: int(added["id"]) for added in content.get("added_tokens") or []}
        merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["model"]["merges"]]
    except (KeyError, TypeError, ValueError) as error:
        where = str(directory / "tokenizer.json")
        raise CheckpointError(f"tokenizer.json is no BPE tokenizer: {error!r}", where=where, do=_ADVICE) from None
    ends = _json(directory / "generation_config.json").get("eos_token_id")
    return Vocabulary(
        source="the HF directory",
        tokens=tuple(sorted(ids, key=lambda token: ids[token])),
        merges=tuple(merges),
        end_ids=frozenset([ends] if isinstance(ends, int) else ends or []),
        begin_id=ids.get("[gMASK]"),
        template=_template(directory),
    )


class ReferenceTokenizer:
    """HF's tokenizer of one directory; no code of that directory is run."""

    def __init__(self, directory: Path) -> None:
        from transformers import PreTrainedTokenizerFast

        # The library raises bare Exception.
        try:
            self._tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(directory / "tokenizer.json"))
        except Exception as error:
            raise CheckpointError(f"cannot read the tokenizer: {error}", where=str(directory), do=_ADVICE) from None
        self._tokenizer.chat_template = _template(directory)

    def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a text, special tokens in it recognised, none added."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> tuple[int, ...]:
        """Token ids of a conversation through the template, up to where the assistant answers."""
        text = self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, **options
        )
        return self.ids(str(text))


def _template(directory: Path) -> str:
    path = directory / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    return str(_json(directory / "tokenizer_config.json").get("chat_template") or "")


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path.name}: {error}", where=str(path), do=_ADVICE) from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path.name} is no JSON object", where=str(path), do=_ADVICE)
    return content
