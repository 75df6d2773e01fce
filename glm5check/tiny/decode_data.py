"""Prompts that go with one build of the tiny model: questions that it surely answers, and passages to score."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from glm5check.tiny import corpus
from glm5check.tiny.evaluation import Answered

PER_KIND: Final = 5
SURE_MARGIN: Final = 2.0
"""Nats. Far above what bfloat16 or quantised activations move a logit, so a right server cannot miss one."""


def chosen_questions(answered: Sequence[Answered]) -> list[corpus.Question]:
    """PER_KIND questions of every kind, spread over the kind and over both forms, each right by SURE_MARGIN."""
    chosen: list[corpus.Question] = []
    for kind in dict.fromkeys(a.question.kind for a in answered):
        sure = [a.question for a in answered if a.question.kind == kind and a.right and a.margin >= SURE_MARGIN]
        forms = [[q for q in sure if q.form == form] for form in ("completion", "chat")]
        forms = [form for form in forms if form]
        for index in range(PER_KIND if forms else 0):
            form = forms[index % len(forms)]
            chosen.append(form[index * len(form) // PER_KIND])
    return list(dict.fromkeys(chosen))


def write_decode_data(folder: Path, answered: Sequence[Answered]) -> None:
    """Write `questions.json` and `passages.json` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    passages = [{"name": p.name, "language": p.language, "text": p.text} for p in corpus.passages()]
    _write(folder / "questions.json", [asdict(question) for question in chosen_questions(answered)])
    _write(folder / "passages.json", passages)


def _write(path: Path, content: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
