"""Training: reproducible data, a bypass of the indexer that changes nothing, and a balance that works."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import AutoTokenizer

from fixtures.options import EMBEDDED
from glm5check.tiny import corpus
from glm5check.tiny.dataset import LONG_LENGTH, SHORT_LENGTH, batches
from glm5check.tiny.distillation import index_scores, train_indexers
from glm5check.tiny.model import new_model
from glm5check.tiny.training import BIAS_STEP, train


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(EMBEDDED)


@pytest.fixture
def model():
    return new_model(seed=0).eval()


def small_batch(length=24):
    ids = torch.randint(0, 900, (2, length), generator=torch.Generator().manual_seed(0))
    return ids, ids


def test_one_seed_gives_the_same_batches_and_another_gives_others(tokenizer):
    first, again, other = (list(batches(tokenizer, seed, 4)) for seed in (3, 3, 4))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], other[0][0])
    assert [ids.shape[1] for ids, _ in first] == [SHORT_LENGTH] * 3 + [LONG_LENGTH]


def test_every_question_is_in_a_pass_as_it_is_asked(tokenizer):
    """Rows start with a document, and a prompt's tokens are those that a server would make of the prompt alone."""
    rows = [row for ids, _ in batches(tokenizer, 0, 11) if ids.shape[1] == SHORT_LENGTH for row in ids.tolist()]
    text = [" ".join(map(str, row)) for row in rows]
    for question in corpus.questions()[::29]:
        ids = tokenizer(question.prompt)["input_ids"] + tokenizer(question.answer)["input_ids"]
        if question.form == "completion":
            assert any(" ".join(map(str, ids)) in row for row in text), question.name


def test_unseen_parts_of_passages_stay_unseen():
    for entry, passage in zip(corpus.DATA["passages"], corpus.passages(), strict=True):
        assert entry["parts"][corpus.UNSEEN_EVERY - 1] in passage.text
        assert entry["parts"][corpus.UNSEEN_EVERY - 1] not in passage.seen


def test_sentences_depend_only_on_the_generator():
    assert corpus.sentences(random.Random(1), 20) == corpus.sentences(random.Random(1), 20)


def test_training_lowers_the_loss_and_gives_the_indexer_back(model):
    losses = []
    indexer = model.model.layers[0].self_attn.indexer
    before = indexer.wk.weight.clone()
    train(model, [small_batch()] * 6, 6, report=lambda _, loss: losses.append(loss))
    assert losses[-1] < losses[0]
    assert torch.equal(indexer.wk.weight, before)
    assert "forward" not in vars(indexer)


def test_bias_moves_against_the_load(model):
    """After one step every bias has moved by one step at most, and the most loaded expert's has gone down."""
    router = model.model.layers[1].mlp.gate
    loads = torch.zeros(8)

    def count(_module, _inputs, output):
        loads.add_(torch.bincount(output[2].flatten(), minlength=8))

    hook = router.register_forward_hook(count)
    train(model, [small_batch()], 1, report=lambda *_: None)
    hook.remove()
    bias = router.e_score_correction_bias
    assert bias[loads.argmax()] == pytest.approx(-BIAS_STEP)
    assert bias[loads.argmin()] == pytest.approx(BIAS_STEP)


def test_index_scores_are_those_by_which_the_indexer_selects(model):
    indexer = model.model.layers[1].self_attn.indexer
    indexer.index_topk = 5
    seen = {}
    indexer.register_forward_hook(lambda _, inputs, output: seen.update(inputs=inputs, selected=output))
    with torch.no_grad():
        model(small_batch()[0], use_cache=False)
        scores = index_scores(indexer, *seen["inputs"][:3])
    # The last query sees every key, so no mask is needed.
    expected = scores[:, -1].topk(5).indices.sort().values
    assert torch.equal(seen["selected"][:, -1].long().sort().values, expected)


def test_distillation_brings_the_scores_closer_and_leaves_the_rest_alone(model):
    frozen = model.model.layers[0].self_attn.q_b_proj.weight.clone()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_b_proj.weight.mul_(20)  # attention worth learning
    frozen *= 20
    before, after = train_indexers(model, [small_batch()] * 8)
    assert after < before
    assert torch.equal(model.model.layers[0].self_attn.q_b_proj.weight, frozen)
