"""The signals on text that this project ships: documentation, code, JSON, templates, and data files cut anywhere."""

import json
from pathlib import Path

import pytest

from fixtures import DATA
from glm5check.checks import decode
from glm5check.checks.decode.texts import has_tail_cycle
from glm5check.oracles.tokenizer import ReferenceTokenizer
from glm5check.records import Generation, Outcome, TokenChoice

ROOT = Path(__file__).parents[3]
PIECE = 700
KINDS = ("*.py", "*.md", "*.json", "*.toml", "*.ini", "*.jinja", "*.txt", "*.lock", "LICENSE")
SKIPPED = {".git", ".tox", "__pycache__", "build", "mutants"}


def pieces():
    """(file, text) of consecutive PIECE-character pieces of every text file, as answers cut off in the middle."""
    for kind in KINDS:
        for path in sorted(ROOT.rglob(kind)):
            if SKIPPED & set(path.relative_to(ROOT).parts) or path.stat().st_size > 1 << 20:
                continue
            text = path.read_text(encoding="utf-8", errors="strict")
            for start in range(0, len(text), PIECE):
                yield path.relative_to(ROOT), text[start : start + PIECE]


@pytest.fixture(scope="module")
def shipped():
    found = list(pieces())
    assert len(found) > 1000
    return found


def test_no_piece_ends_in_a_cycle(shipped):
    assert [path for path, text in shipped if has_tail_cycle(text)] == []


def test_signs_in_single_pieces_are_few_and_never_two(shipped):
    """A sign alone may be healthy: the sources of this project quote special tokens. Two signs in one piece may not."""
    signs = [
        (path, decode.text_signals(Generation(prompt=str(path), text=text, finish_reason="length")))
        for path, text in shipped
    ]
    assert [path for path, found in signs if len(found) > 1] == []
    alarms = [path for path, found in signs if found]
    assert len(alarms) / len(shipped) < 0.03, f"{len(alarms)} of {len(shipped)}"


def test_the_only_sign_in_shipped_text_is_a_quoted_special_token(shipped):
    signs = {
        sign
        for path, text in shipped
        for sign in decode.text_signals(Generation(prompt=str(path), text=text, finish_reason="length"))
    }
    assert signs <= {"special token"}


def test_no_piece_is_stuck_on_one_token(shipped):
    """By the tiny tokenizer, whose tokens are short, so that its runs are longer than those of GLM-5's.

    A ruler of a hundred dashes cut in its middle would alarm by it; GLM-5's own has one token for many of them.
    """
    tokenizer = ReferenceTokenizer(DATA / "tiny-glm5")
    stuck = []
    for path, text in shipped:
        tokens = tuple(TokenChoice(token, -1.0) for token in tokenizer.ids(text))
        answer = Generation(prompt=str(path), tokens=tokens, text=text, finish_reason="length")
        stuck += [finding for finding in decode.token_runs([answer]) if finding.outcome is Outcome.FAILED]
    assert stuck == []


def test_the_trained_answers_have_no_sign():
    questions = json.loads((DATA / "decode" / "questions.json").read_text(encoding="utf-8"))
    answers = [Generation(prompt=item["name"], text=item["answer"], finish_reason="stop") for item in questions]
    assert [finding.outcome for finding in decode.garbled_text(answers)] == [Outcome.PASSED]
