"""GGUF keys against the HF config. vLLM takes everything but the weights from the latter, and defaults silently."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from glm5check import tolerances
from glm5check.checkpoint.audit import Checkpoint, HfFiles
from glm5check.checks.checkpoint.findings import failed, passed, some_of, unknown
from glm5check.errors import CheckpointError
from glm5check.glm5.dimensions import Dimensions
from glm5check.records import Finding

SILENT_DEFAULTS: Final = {
    "scoring_func": "softmax",
    "topk_method": "no router bias",
    "indexer_rope_interleave": "False: the indexer's positions are rotated wrongly beyond index_topk",
    "routed_scaling_factor": "the config class's 2.5, or 1.0 without one",
    "norm_topk_prob": "the config class's default",
    "n_group": "1",
    "topk_group": "1",
    "first_k_dense_replace": "the config class's 3",
    "index_topk": "the config class's 2048",
    "tie_word_embeddings": "the config class's default",
}
"""HF keys that GLM-5 needs, and what vLLM takes without a word where one is missing. The first three have no default in
transformers' config class, so that vLLM's own, another model's, comes through."""

FIXED: Final = {
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "indexer_rope_interleave": True,
    "moe_layer_freq": 1,
}
"""Values that GLM-5 has in every size."""

_NO_CONFIG: Final = "no HF config was given (--config DIR)"


def config_agrees(checkpoint: Checkpoint) -> list[Finding]:
    """Every dimension, count, scale and rule that both sides state is the same on both."""
    want = "the HF config to say what the GGUF keys say"
    if checkpoint.hf is None or checkpoint.dimensions is None:
        return unknown("config", checkpoint.dimensions_error or _NO_CONFIG, want)
    try:
        hf = Dimensions.from_hf(checkpoint.hf.config)
    except CheckpointError as error:
        return [failed("config", f"{error.what} ({error.where})", want)]
    except (TypeError, ValueError, OverflowError) as error:
        return [failed("config", f"a key of config.json has a value of the wrong kind: {error}", want)]
    findings = []
    for field in fields(Dimensions):
        ours, theirs = getattr(checkpoint.dimensions, field.name), getattr(hf, field.name)
        if not _same(ours, theirs) and not (field.name == "nextn_layers" and ours == 0):
            findings.append(failed("config", f"HF {theirs!r}, GGUF {ours!r}", want, {"key": field.name}))
    findings += _rope_scaling(checkpoint.metadata, checkpoint.hf.config)
    return findings or passed("config", f"{len(fields(Dimensions))} values and the rope scaling equal", want)


def config_complete(checkpoint: Checkpoint) -> list[Finding]:
    """The HF config states what vLLM would otherwise assume silently, and states GLM-5's rules."""
    want = "every key that vLLM defaults silently, with GLM-5's value"
    if checkpoint.hf is None:
        return unknown("defaults", _NO_CONFIG, want)
    config = checkpoint.hf.config
    findings = [
        failed("defaults", "missing", want, {"key": key}, cause=f"vLLM then takes {default}")
        for key, default in SILENT_DEFAULTS.items()
        if key not in config
    ]
    findings += [
        failed("defaults", repr(config[key]), repr(value), {"key": key})
        for key, value in FIXED.items()
        if key in config and config[key] != value
    ]
    return findings or passed("defaults", f"{len(SILENT_DEFAULTS)} keys stated", want)


def tied_head(checkpoint: Checkpoint) -> list[Finding]:
    """A model that has its own output matrix must not be told to use the embedding instead."""
    want = "tie_word_embeddings false exactly if output.weight exists"
    if checkpoint.hf is None:
        return unknown("tied_head", _NO_CONFIG, want)
    tied, own = bool(checkpoint.hf.config.get("tie_word_embeddings", False)), "output.weight" in checkpoint.tensors
    got = f"tie_word_embeddings {str(tied).lower()}, output.weight {'there' if own else 'absent'}"
    cause = "vllm-gguf-plugin unites the names that each split file lacks, and so ties every split model"
    return (
        [failed("tied_head", got, want, cause=cause if tied else "")] if tied == own else passed("tied_head", got, want)
    )


def vocabulary(checkpoint: Checkpoint) -> list[Finding]:
    """Every token id of both tokenizers has a row in the embedding and in the output matrix."""
    want = "no token id without a row of the embedding"
    embedding = checkpoint.tensors.get("token_embd.weight")
    tokens = checkpoint.metadata.get("tokenizer.ggml.tokens")
    if embedding is None or not isinstance(tokens, tuple):
        return unknown("vocabulary", "the file has no embedding or no tokens", want)
    rows = embedding.shape[0]
    findings = []
    if len(tokens) != rows:
        findings.append(failed("vocabulary", f"{len(tokens)} tokens in the GGUF, {rows} rows", want))
    size = checkpoint.hf.tokenizer_ids if checkpoint.hf else None
    if size is not None and size > rows:
        findings.append(failed("vocabulary", f"tokenizer.json has ids up to {size - 1}, {rows} rows", want))
    if findings:
        return findings
    if size is None:
        return unknown("vocabulary", "no tokenizer.json was given (--config DIR)", want)
    return passed("vocabulary", f"{rows} rows, {len(tokens)} GGUF tokens, {size} ids in tokenizer.json", want)


def end_tokens(checkpoint: Checkpoint) -> list[Finding]:
    """A generation ends at every token at which the GGUF says so: else the model goes on and talks to itself."""
    want = "eos_token_id of generation_config.json to hold the GGUF's end tokens"
    ends = _end_ids(checkpoint.metadata)
    if checkpoint.hf is None or not ends:
        return unknown("end_tokens", _NO_CONFIG if checkpoint.hf is None else "the GGUF names no end token", want)
    given = _eos(checkpoint.hf)
    missing = sorted(ends - given)
    if missing:
        names = some_of(f"{ends_id} {_token(checkpoint.metadata, ends_id)!r}" for ends_id in missing)
        return [failed("end_tokens", f"{names} missing from {sorted(given)}", want)]
    return passed("end_tokens", f"{sorted(given)}", want)


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=tolerances.GGUF_FLOAT_RELATIVE)
    return bool(ours == theirs)


def _rope_scaling(metadata: Mapping[str, Any], config: Mapping[str, Any]) -> list[Finding]:
    """Type and factor of the rope scaling; absent means none on either side."""
    want = "the same rope scaling"
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theirs = stated.get("rope_type", stated.get("type", "default")) if isinstance(stated, dict) else repr(stated)
    ours = metadata.get("glm-dsa.rope.scaling.type", "none")
    if (theirs in ("default", None)) != (ours == "none") or (ours != "none" and ours != theirs):
        return [failed("config", f"HF {theirs!r}, GGUF {ours!r}", want, {"key": "rope scaling type"})]
    factor = metadata.get("glm-dsa.rope.scaling.factor")
    if ours != "none" and not _same(factor, stated.get("factor", 1.0)):
        got = f"HF {stated.get('factor')!r}, GGUF {factor!r}"
        return [failed("config", got, want, {"key": "rope scaling factor"})]
    return []


def _end_ids(metadata: Mapping[str, Any]) -> set[int]:
    keys = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
    return {value for key in keys if isinstance(value := metadata.get(key), int)}


def _eos(hf: HfFiles) -> set[int]:
    source = hf.generation if hf.generation is not None else hf.config
    value = source.get("eos_token_id")
    return {entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, int)}


def _token(metadata: Mapping[str, Any], token_id: int) -> str:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return tokens[token_id] if isinstance(tokens, tuple) and 0 <= token_id < len(tokens) else "?"
