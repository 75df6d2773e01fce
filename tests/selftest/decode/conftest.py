"""Records of a healthy little model, and of what becomes of them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from glm5check.checks.causes import Installation
from glm5check.records import Generation, Outcome, Scores, TokenChoice

VOCABULARY = 50


@pytest.fixture
def installation():
    return Installation(ranks=2, reduced=False)


@pytest.fixture
def reduced():
    return Installation(ranks=2, reduced=True)


@pytest.fixture
def scores():
    """`scores("name", length=40, noise=0.1)`: whole distributions, noise in nats on every logit."""

    def make(name="text", *, length=40, noise=0.0, seed=1):
        logits = np.random.default_rng(seed).normal(0, 2, (length, VOCABULARY))
        logits += noise * np.random.default_rng(seed + 1).normal(0, 1, logits.shape)
        logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        ids = np.random.default_rng(seed + 2).integers(0, VOCABULARY, length + 1)
        tokens = tuple(
            TokenChoice(int(ids[i + 1]), float(row[ids[i + 1]]), dict(enumerate(row.tolist())))
            for i, row in enumerate(logprobs)
        )
        return Scores(prompt=name, prompt_ids=tuple(map(int, ids)), tokens=tokens)

    return make


@pytest.fixture
def generation(scores):
    """`generation("name")`: what greedy decoding of the same distributions gives behind a prompt of 4 tokens."""

    def make(name="text", *, length=40, noise=0.0, seed=1, **changes):
        tokens = tuple(
            TokenChoice(max(choice.top, key=choice.top.get), max(choice.top.values()), choice.top)
            for choice in scores(name, length=length, noise=noise, seed=seed).tokens
        )
        made = Generation(prompt=name, prompt_ids=(1, 2, 3, 4), tokens=tokens, text="words", finish_reason="length")
        return replace(made, **changes)

    return make


@pytest.fixture
def failed():
    """`failed(findings)`: the failed ones; asserts that nothing is inconclusive."""

    def select(findings):
        assert all(finding.outcome is not Outcome.INCONCLUSIVE for finding in findings), findings
        return [finding for finding in findings if finding.outcome is Outcome.FAILED]

    return select


@pytest.fixture
def with_nan():
    """`with_nan(record, at)`: the logprob of token `at` is NaN."""

    def spoil(record, at=5):
        tokens = list(record.tokens)
        tokens[at] = TokenChoice(tokens[at].token_id, math.nan, dict(tokens[at].top))
        return replace(record, tokens=tuple(tokens))

    return spoil
