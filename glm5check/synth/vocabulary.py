"""The tokenizer of a synthetic model: a given one, or the tiny model's, with as many tokens as the vocabulary has rows.

Random weights choose any row, so every id must decode: rows beyond the tokenizer become tokens that no text produces.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from glm5check.errors import CheckpointError
from glm5check.tiny.dataset import tokenizer_texts
from glm5check.tiny.tokenizer import END_OF_TEXT, OBSERVATION, USER, save_tokenizer, train_tokenizer, vocabulary

FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_TRAINED_WITH: Final = 0
"""Seed of the tiny model's tokenizer."""


def write_tokenizer(folder: Path, vocab: int, source: Path | None) -> dict[str, Any]:
    """Write FILES of a tokenizer of exactly `vocab` tokens into `folder`; return the ids that config files name.

    `source` is a directory with FILES; the tiny model's tokenizer is learned anew where it is None. Raises
    CheckpointError if a file or a special token is missing, or if the tokenizer has more tokens than `vocab`.
    """
    if source is None:
        save_tokenizer(train_tokenizer(tokenizer_texts(_TRAINED_WITH)), folder)
    else:
        _copy(source, folder)
    tokens, _, _ = vocabulary(folder)
    if len(tokens) > vocab:
        raise CheckpointError(
            f"the tokenizer has {len(tokens)} tokens, more than the {vocab} of the model",
            where=str(source or folder),
            do=f"raise --vocab to {len(tokens)} or more, or give a smaller tokenizer",
        )
    missing = [token for token in (END_OF_TEXT, USER, OBSERVATION) if token not in tokens]
    if missing:
        raise CheckpointError(
            f"the tokenizer lacks {', '.join(missing)}", where=str(source), do="give one of a GLM model"
        )
    _pad(folder / "tokenizer.json", len(tokens), vocab)
    end = tokens.index(END_OF_TEXT)
    return {"eos_token_id": [end, tokens.index(USER), tokens.index(OBSERVATION)], "pad_token_id": end}


def _copy(source: Path, folder: Path) -> None:
    for name in FILES:
        if not (source / name).is_file():
            raise CheckpointError(
                f"the tokenizer lacks {name}", where=str(source), do="give a directory with all files"
            )
        shutil.copyfile(source / name, folder / name)


def _pad(path: Path, tokens: int, vocab: int) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"]["vocab"] |= {f"[PAD{index}]": index for index in range(tokens, vocab)}
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
