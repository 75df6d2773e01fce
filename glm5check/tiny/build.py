"""Build the embedded model: tokenizer, training, export, score of the exported files, questions, passages, manifest."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch
from transformers import PreTrainedTokenizerFast

from glm5check.tiny import corpus
from glm5check.tiny.dataset import batches, tokenizer_texts
from glm5check.tiny.distillation import train_indexers
from glm5check.tiny.evaluation import Answered, answer_all, mean_nll
from glm5check.tiny.export import UD_Q4_K_XL, export_gguf
from glm5check.tiny.geometry import generation_config, hf_config
from glm5check.tiny.model import new_model, write_configs
from glm5check.tiny.reload import load_model
from glm5check.tiny.tokenizer import save_tokenizer, train_tokenizer
from glm5check.tiny.training import train

STEPS: Final = 700
INDEXER_STEPS: Final = 60
MANIFEST: Final = "manifest.json"
PACKAGES: Final = ("torch", "transformers", "tokenizers", "gguf", "numpy")


def build(folder: Path, *, seed: int, steps: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Build the model in `folder` and return the content of its manifest.

    One seed gives one corpus, tokenizer and order of batches; the weights themselves depend on the machine's
    floating-point order.
    """
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(tokenizer_texts(seed))
    save_tokenizer(tokenizer, folder)
    write_configs(folder, hf_config(), generation_config())
    model = new_model(seed)
    loss = train(model, batches(tokenizer, seed, steps), steps, report=_progress(say, started))
    say(f"training loss {loss:.3f}")
    first, last = train_indexers(model, batches(tokenizer, seed + 1, INDEXER_STEPS))
    say(f"indexer KL {first:.3f} -> {last:.3f}")
    export_gguf(model.state_dict(), hf_config(), folder, folder, mix=UD_Q4_K_XL)
    training = {"loss": round(loss, 4), "steps": steps, "indexer_steps": INDEXER_STEPS, "indexer_kl": [first, last]}
    manifest = _manifest(folder, tokenizer, seed=seed, training=training)
    manifest["build_seconds"] = round(time.monotonic() - started)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return manifest


def _progress(say: Callable[[str], None], started: float) -> Callable[[int, float], None]:
    def report(step: int, loss: float) -> None:
        if step % 20 == 0:
            say(f"step {step}: loss {loss:.3f} after {time.monotonic() - started:.0f} s")

    return report


def _manifest(
    folder: Path, tokenizer: PreTrainedTokenizerFast, *, seed: int, training: dict[str, Any]
) -> dict[str, Any]:
    """Facts about the files in `folder`; the scores are those of the dequantised files, not of the training run."""
    model = load_model(folder)
    answered = answer_all(model, tokenizer, corpus.questions())
    return {
        "seed": seed,
        "training": training,
        "questions": {"right": sum(a.right for a in answered), "total": len(answered)},
        "wrong": sorted(a.question.name for a in answered if not a.right),
        "passage_nll": {p.name: round(mean_nll(model, tokenizer, p), 3) for p in corpus.passages()},
        "packages": {name: version(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "files": {path.name: file_facts(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST},
    }


def file_facts(path: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file."""
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def chosen_questions(answered: list[Answered], *, per_kind: int, margin: float) -> list[dict[str, str]]:
    """Up to `per_kind` questions of each kind that are right by at least `margin` nats, both forms alike, in order."""
    chosen: list[dict[str, str]] = []
    for kind in dict.fromkeys(a.question.kind for a in answered):
        sure = [a for a in answered if a.question.kind == kind and a.right and a.margin >= margin]
        forms = {form: [a for a in sure if a.question.form == form] for form in ("completion", "chat")}
        # A country asked in one form should not be the one asked in the other: take from both ends.
        half = -(-per_kind // 2)
        picked = forms["completion"][:half] + forms["chat"][::-1][: per_kind - half]
        chosen += [asdict(a.question) for a in picked]
    return chosen
