"""Build the embedded model: tokenizer, training, export, score of the exported files, questions, passages, manifest."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
from transformers import PreTrainedTokenizerFast

from glm5check.oracles.hf import load_model
from glm5check.tiny import corpus
from glm5check.tiny.dataset import batches, tokenizer_texts
from glm5check.tiny.decode_data import write_decode_data
from glm5check.tiny.distillation import train_indexers
from glm5check.tiny.evaluation import answer_all, mean_nll
from glm5check.tiny.export import UD_Q4_K_XL, export_gguf
from glm5check.tiny.geometry import generation_config, hf_config
from glm5check.tiny.model import new_model, write_configs
from glm5check.tiny.tokenizer import save_tokenizer, train_tokenizer
from glm5check.tiny.training import train

Say: TypeAlias = Callable[[str], None]

STEPS: Final = 700
REPORT_EVERY: Final = 20
INDEXER_STEPS: Final = 60
MANIFEST: Final = "manifest.json"
PACKAGES: Final = ("torch", "transformers", "tokenizers", "gguf", "numpy")


def build(folder: Path, decode_data: Path | None, *, seed: int, steps: int, say: Say) -> dict[str, Any]:
    """Build the model in `folder`, its prompts in `decode_data` (if given), and return the content of the manifest.

    One seed gives one corpus, tokenizer and order of batches; the weights themselves depend on the machine's
    floating-point order.
    """
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(tokenizer_texts(seed))
    save_tokenizer(tokenizer, folder)
    write_configs(folder, hf_config(), generation_config())
    training, model = _train_and_export(folder, tokenizer, seed=seed, steps=steps, say=say)
    manifest = {"seed": seed, "training": training} | _score(model, decode_data, tokenizer)
    manifest |= {
        "packages": {name: version(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "build_seconds": round(time.monotonic() - started),
        "files": {path.name: file_facts(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return manifest


def _train_and_export(
    folder: Path, tokenizer: PreTrainedTokenizerFast, *, seed: int, steps: int, say: Say
) -> tuple[dict[str, Any], Path]:
    """(facts, first GGUF file). Loss in nats per token; the indexer's KL before and after, in nats per query."""
    model = new_model(seed)
    loss = train(model, batches(tokenizer, seed, steps), steps, report=_progress(say))
    say(f"training loss {loss:.3f}")
    before, after = train_indexers(model, batches(tokenizer, seed + 1, INDEXER_STEPS))
    say(f"indexer KL {before:.3f} -> {after:.3f}")
    files = export_gguf(model.state_dict(), hf_config(), folder, folder, mix=UD_Q4_K_XL)
    facts = {
        "steps": steps,
        "loss": round(loss, 4),
        "indexer_steps": INDEXER_STEPS,
        "indexer_kl": [round(before, 4), round(after, 4)],
    }
    return facts, files[0]


def _score(gguf: Path, decode_data: Path | None, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """How the exported files do, dequantised; what was trained is not asked again."""
    model = load_model(gguf, gguf.parent)
    answered = answer_all(model, tokenizer, corpus.questions())
    if decode_data is not None:
        write_decode_data(decode_data, answered)
    return {
        "questions": {"right": sum(a.right for a in answered), "total": len(answered)},
        "wrong": sorted(a.question.name for a in answered if not a.right),
        "passage_nll": {p.name: round(mean_nll(model, tokenizer, p), 3) for p in corpus.passages()},
    }


def _progress(say: Say) -> Callable[[int, float], None]:
    def report(step: int, loss: float) -> None:
        if step % REPORT_EVERY == 0:
            say(f"step {step}: loss {loss:.3f}")

    return report


def file_facts(path: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file."""
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
