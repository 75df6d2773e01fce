"""Everything about a checkpoint that can be judged without a server, gathered from its files as one record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from glm5check.checkpoint.contents import Depth, Progress, TensorContent, contents
from glm5check.checkpoint.header import TensorInfo
from glm5check.checkpoint.index import Defect, GgufSet
from glm5check.errors import CheckpointError
from glm5check.glm5.dimensions import Dimensions, read_hf_config

_MAX_JSON_BYTES: Final = 64 << 20
"""The largest tokenizer.json of this family has 20 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HfFiles:
    """The files beside the weights that vLLM reads."""

    config: Mapping[str, Any]
    generation: Mapping[str, Any] | None
    """generation_config.json, None if there is none."""
    tokenizer_ids: int | None
    """Largest token id of tokenizer.json plus one, None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What `glm5check audit` judges."""

    file: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    defects: tuple[Defect, ...]
    dimensions: Dimensions | None
    dimensions_error: str
    """Why the GGUF keys give no dimensions; empty if they do."""
    hf: HfFiles | None
    contents: tuple[TensorContent, ...] = ()


def survey(
    model: GgufSet, config: Path | None, *, depth: Depth = Depth.TABLE, progress: Progress = lambda _: None
) -> Checkpoint:
    """Gather the record of `model`, with the HF files of directory `config` and contents to `depth`.

    CheckpointError if the HF files are malformed or a file shrinks while it is read.
    """
    dimensions, error = _dimensions(model.metadata)
    return Checkpoint(
        file=model.headers[0].file,
        metadata=model.metadata,
        tensors=model.tensors,
        defects=model.defects,
        dimensions=dimensions,
        dimensions_error=error,
        hf=None if config is None else read_hf_files(config),
        contents=() if depth is Depth.TABLE else tuple(contents(model, depth, progress)),
    )


def read_hf_files(directory: Path) -> HfFiles:
    """The HF files in `directory`; CheckpointError if one is malformed or config.json is missing."""
    return HfFiles(
        config=read_hf_config(directory),
        generation=_read_json(directory / "generation_config.json"),
        tokenizer_ids=_tokenizer_ids(directory / "tokenizer.json"),
    )


def _dimensions(metadata: Mapping[str, Any]) -> tuple[Dimensions | None, str]:
    try:
        return Dimensions.from_gguf(metadata), ""
    except CheckpointError as error:
        return None, f"{error.what} ({error.where})"
    except (TypeError, ValueError, OverflowError) as error:
        return None, f"a key has a value of the wrong kind: {error}"


def _read_json(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise ValueError(f"{path.stat().st_size} bytes are too many")
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read the file: {error}", where=str(path), do="restore the file") from None
    return value


def _tokenizer_ids(path: Path) -> int | None:
    tokenizer = _read_json(path)
    if tokenizer is None:
        return None
    try:
        ids = [*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer.get("added_tokens", ()))]
        return max(map(int, ids)) + 1
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"the tokenizer has no vocabulary: {error!r}", where=str(path), do="take tokenizer.json from the model"
        ) from None
