"""Faults of what is given beside the weights: HF config, generation config, tokenizer, template, and options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from glm5check.selfcheck.seeded import Place, Seed, SeededFault, in_model, with_options
from glm5check.vllm_plugin.faults.fault import FaultClass

CONFIG: Final = "tests/checkpoint/test_config.py"
LAYOUT: Final = "tests/checkpoint/test_layout.py"
BESIDE: Final = ("tests/checkpoint/test_files.py", LAYOUT, CONFIG)
AGREES: Final = f"{CONFIG}::test_hf_config_agrees_with_gguf_keys"
COMPLETE: Final = f"{CONFIG}::test_nothing_is_left_to_a_silent_default"
ROWS: Final = 1024
"""Of the embedded model's embedding: the first id that has none."""
TOKENIZER: Final = "tests/decode/test_tokenizer.py::test_the_file_has_the_tokenizer_of_the_config"


def _fault(name: str, fault_class: FaultClass, caught_by: str, seed: Seed, **words: Any) -> SeededFault:
    return SeededFault(
        name=name,
        fault_class=fault_class,
        seeded_in=Place.CONFIG,
        caught_by=caught_by,
        seed=seed,
        beside=BESIDE,
        **words,
    )


def _json(file: str, change: Callable[[dict[str, Any]], None]) -> Seed:
    """A fault in one of the JSON files beside the weights."""

    def spoil(directory: Path) -> None:
        path = directory / file
        content = json.loads(path.read_text(encoding="utf-8"))
        change(content)
        path.write_text(json.dumps(content), encoding="utf-8")

    return in_model(spoil)


def _config(**values: Any) -> Seed:
    return _json("config.json", lambda config: config.update(values))


def _without_begin(directory: Path) -> None:
    path = directory / "chat_template.jinja"
    path.write_text(path.read_text(encoding="utf-8").replace("[gMASK]<sop>", ""), encoding="utf-8")


def _without_a_merge(tokenizer: dict[str, Any]) -> None:
    del tokenizer["model"]["merges"][3]


def _beyond_the_rows(tokenizer: dict[str, Any]) -> None:
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][-1], "id": ROWS, "content": "<|one_more|>"})


FAULTS: Final = (
    _fault(
        "config_softmax",
        FaultClass.ROUTING,
        AGREES,
        _config(scoring_func="softmax"),
        stands_for="GLM GGUF without a gating function: softmax instead of sigmoid, perplexity 11.06 instead of 9.81",
        seeded="scoring_func of config.json is softmax",
        says="key=gating",
    ),
    _fault(
        "config_routed_scale",
        FaultClass.ROUTING,
        AGREES,
        _config(routed_scaling_factor=1.0),
        stands_for="routed_scaling_factor missing in one place: gsm8k 0.378 instead of 0.897",
        seeded="routed_scaling_factor of config.json is 1",
        says="key=routed_scale",
    ),
    _fault(
        "config_rope_theta",
        FaultClass.ROTARY,
        AGREES,
        _config(rope_parameters={"rope_theta": 8e6, "rope_type": "default"}),
        stands_for="GLM-5.2: rope_theta 8e6 in one place of the config, 1e6 in another, and no word of it",
        seeded="rope_theta of config.json is 8e6",
        says="key=rope_theta",
    ),
    _fault(
        "config_yarn",
        FaultClass.ROTARY,
        AGREES,
        _config(rope_parameters={"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0}),
        stands_for="YaRN on one side only: perplexity 6.06 instead of 5.07, growing with position",
        seeded="config.json has YaRN of factor 4",
        says="yarn",
    ),
    _fault(
        "config_index_topk",
        FaultClass.INDEXER,
        AGREES,
        _config(index_topk=64),
        stands_for="a sparse indexer that keeps too few tokens: right below, single wrong characters above",
        seeded="index_topk of config.json is 64",
        says="key=index_topk",
    ),
    _fault(
        "config_indexer_rotary",
        FaultClass.INDEXER,
        COMPLETE,
        _config(indexer_rope_interleave=False),
        stands_for="GLM-5.x: single-character errors that grow with the context, token salad past 9 thousand tokens",
        seeded="indexer_rope_interleave of config.json is false",
        says="key=indexer_rope_interleave",
    ),
    _fault(
        "config_silent_default",
        FaultClass.ROUTING,
        COMPLETE,
        _json("config.json", lambda config: config.pop("scoring_func")),
        stands_for="a key that vLLM takes another model's default for, without a word",
        seeded="config.json has no scoring_func",
        says="vLLM then takes softmax",
    ),
    _fault(
        "config_tied_head",
        FaultClass.LOADING,
        f"{CONFIG}::test_output_matrix_is_not_tied_to_the_embedding",
        _config(tie_word_embeddings=True),
        stands_for="vllm-gguf-plugin ties every split model, because each part lacks names of the others",
        seeded="tie_word_embeddings of config.json is true",
        says="ties every split model",
    ),
    _fault(
        "config_token_without_row",
        FaultClass.TOKENIZER,
        f"{CONFIG}::test_every_token_has_an_embedding_row",
        _json("tokenizer.json", _beyond_the_rows),
        stands_for="a tokenizer of another revision: ids beyond the embedding read foreign memory",
        seeded="tokenizer.json has a token just beyond the rows of the embedding",
        says="has ids up to 1024, 1024 rows",
    ),
    _fault(
        "config_one_end_id",
        FaultClass.TOKENIZER,
        f"{CONFIG}::test_generation_ends_where_the_gguf_says",
        _json("generation_config.json", lambda config: config.update(eos_token_id=990)),
        stands_for="GLM answers, then writes `<|user|>` and talks to itself: one of three end-of-sequence ids is known",
        seeded="eos_token_id of generation_config.json is one id",
        says="missing from [990]",
    ),
    _fault(
        "config_template",
        FaultClass.TOKENIZER,
        TOKENIZER,
        in_model(_without_begin),
        stands_for="a chat template without its beginning: answers are only worse",
        seeded="the HF chat template has no `[gMASK]<sop>`",
        says="part=chat template",
    ),
    _fault(
        "config_merges",
        FaultClass.TOKENIZER,
        TOKENIZER,
        _json("tokenizer.json", _without_a_merge),
        stands_for="a tokenizer with merges of another revision: other ids for the same text",
        seeded="tokenizer.json lacks one merge",
        says="part=merges",
    ),
    _fault(
        "ranks_cut_super_blocks",
        FaultClass.LOADING,
        f"{LAYOUT}::test_row_parallel_slices_end_at_block_borders",
        with_options("--glm5-gpus=4"),
        stands_for="row-parallel K-quants cut inside a super-block: garbage, or a crash at the first request",
        seeded="four ranks for down experts of two super-blocks a row",
        says="0.5 blocks of 256",
    ),
    _fault(
        "ranks_uneven",
        FaultClass.LOADING,
        f"{LAYOUT}::test_ranks_share_every_axis_evenly",
        with_options("--glm5-gpus=3"),
        stands_for="a number of ranks that divides neither heads nor feed-forward",
        seeded="three ranks for four heads",
        says="not a multiple of 3",
    ),
    _fault(
        "plugin_takes_no_rank",
        FaultClass.LOADING,
        "tests/sharding/test_loaders.py::test_plugin_reads_only_what_vllm_passes",
        with_options("--glm5-fixes=cpu_rotary,moe_types"),
        stands_for="silent corruption with more than one rank: vllm-gguf-plugin 0.0.5 on a vLLM that passes no rank",
        seeded="the installed plugin without our fix of it",
        says="reads 'tp_rank' (default 0)",
    ),
)
