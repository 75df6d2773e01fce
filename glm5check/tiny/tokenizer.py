"""The tiny tokenizer: byte-level BPE with GLM-4's pre-tokenizer and GLM-5's special tokens, trained on the corpus.

Ids run as in GLM-5's own: ordinary tokens first, then the special ones in its order. The embedding has a few rows more
(padding), which no text ever produces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE: Final = 1024
"""Rows of embedding and output, padding included."""
TOKEN_COUNT: Final = 1016
"""Tokens that exist; ids from here to VOCAB_SIZE are padding."""
LONGEST_TOKEN: Final = 8
"""Bytes: at most two Chinese characters or eight letters, so that words and answers are several tokens."""
END_OF_TEXT: Final = "<|endoftext|>"
USER: Final = "<|user|>"
OBSERVATION: Final = "<|observation|>"
BEGIN: Final = "[gMASK]"

CONTROL_TOKENS: Final = (
    END_OF_TEXT, "[MASK]", BEGIN, "[sMASK]", "<sop>", "<eop>", "<|system|>", USER, "<|assistant|>", OBSERVATION,
    "<|begin_of_image|>", "<|end_of_image|>", "<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>",
)  # fmt: skip
"""Tokens that a decoder leaves out of the text."""
MARKUP_TOKENS: Final = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
    "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink",
)  # fmt: skip
"""One token each, but part of the text: parsers of reasoning and tool calls look for them."""
SPECIAL_TOKENS: Final = (*CONTROL_TOKENS, *MARKUP_TOKENS)

# GLM-4's split: contractions, words with one leading non-letter, up to three digits, punctuation, line ends, spaces.
PRE_TOKENIZER: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE: Final = (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8").rstrip("\n")


def special_id(token: str) -> int:
    """Id of a special token; the same for every corpus, since ordinary tokens fill a fixed number of ids."""
    return TOKEN_COUNT - len(SPECIAL_TOKENS) + SPECIAL_TOKENS.index(token)


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Learn the merges from `texts`; raises ValueError if the texts are too small for TOKEN_COUNT tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKEN_COUNT - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=LONGEST_TOKEN,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(list(CONTROL_TOKENS))
    tokenizer.add_tokens(list(MARKUP_TOKENS))
    if tokenizer.token_to_id(SPECIAL_TOKENS[-1]) != TOKEN_COUNT - 1:
        raise ValueError(f"the corpus gave {tokenizer.get_vocab_size()} tokens instead of {TOKEN_COUNT}")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=None,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        additional_special_tokens=list(CONTROL_TOKENS[1:]),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
        padding_side="left",
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`, as GLM-5's repository has them."""
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def vocabulary(folder: Path) -> tuple[list[str], list[str], list[bool | None]]:
    """What a GGUF needs of `tokenizer.json`: (token strings by id, merges "left right", kind by id).

    Kind is None for an ordinary token, True for a control token, False for one that stays in the text.
    """
    content: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    ids: dict[str, int] = dict(content["model"]["vocab"])
    kinds: dict[int, bool] = {}
    for added in content["added_tokens"]:
        ids[added["content"]] = added["id"]
        kinds[added["id"]] = bool(added["special"])
    tokens = sorted(ids, key=lambda token: ids[token])
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError(f"ids in {folder / 'tokenizer.json'} are not 0..{len(tokens) - 1}")
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["model"]["merges"]]
    return tokens, merges, [kinds.get(index) for index in range(len(tokens))]
