"""Two independent implementations on the embedded model: they agree, and the checks see a model that is not it."""

import numpy as np
import pytest
import torch

from fixtures import DATA
from glm5check.checks import decode
from glm5check.checks.causes import Installation
from glm5check.oracles.hf import TransformersOracle
from glm5check.oracles.llamacpp import LlamaCppOracle
from glm5check.oracles.prompts import random_prompts
from glm5check.oracles.tokenizer import ReferenceTokenizer
from glm5check.records import Outcome

TINY = DATA / "tiny-glm5"
PROMPTS = random_prompts(1024, count=3, length=40)


@pytest.fixture(scope="module")
def transformers_oracle():
    torch.set_num_threads(1)
    return TransformersOracle(sorted(TINY.glob("*.gguf"))[0], TINY)


@pytest.fixture(scope="module")
def llamacpp_oracle():
    with LlamaCppOracle(sorted(TINY.glob("*.gguf"))[0]) as oracle:
        yield oracle


@pytest.fixture(scope="module")
def by_transformers(transformers_oracle):
    return [transformers_oracle.score(name, ids) for name, ids in PROMPTS.items()]


@pytest.fixture(scope="module")
def by_llamacpp(llamacpp_oracle):
    return [llamacpp_oracle.score(name, ids) for name, ids in PROMPTS.items()]


def failed(findings):
    return [finding for finding in findings if finding.outcome is Outcome.FAILED]


def test_they_agree(by_transformers, by_llamacpp):
    reduced = Installation(reduced=True)
    assert failed(decode.mean_kl(by_llamacpp, by_transformers, reduced)) == []
    assert len(decode.agreed_scores(by_transformers, by_llamacpp)) == len(PROMPTS)


def test_they_go_on_alike(transformers_oracle, llamacpp_oracle):
    """On text that the model knows: random tokens have near-ties everywhere."""
    ids = ReferenceTokenizer(TINY).ids("The capital of France is")
    ours = llamacpp_oracle.generate("fr", ids, max_tokens=6)
    theirs = transformers_oracle.generate("fr", ids, max_tokens=6)
    assert len(theirs.ids) > 1
    assert failed(decode.greedy_ids([ours], [theirs], Installation(reduced=True))) == []


def test_a_layer_that_computes_otherwise_is_named(transformers_oracle):
    """The weights of one attention are scaled by a hundredth: the first place that differs is that attention."""
    ids = next(iter(PROMPTS.values()))
    want = transformers_oracle.hidden_states(ids)
    projection = transformers_oracle.model.model.layers[1].self_attn.o_proj.weight
    with torch.no_grad():
        projection.mul_(1.01)
        got = transformers_oracle.hidden_states(ids)
        projection.div_(1.01)
    (finding,) = failed(decode.hidden_states("random", got, want, Installation(reduced=False)))
    assert "blk.1.attention, the first of 8 places" in finding.got


MUTANTS = {
    "one layer's shared expert gets another's rows": lambda layers: [layers[1].mlp.shared_experts.gate_proj.weight],
    "attention of one layer": lambda layers: [layers[2].self_attn.kv_b_proj.weight],
    "experts of one layer": lambda layers: [layers[1].mlp.experts.gate_up_proj],
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mean_kl_sees_rows_in_the_wrong_place(mutant, transformers_oracle, by_transformers):
    """Half of the rows of one matrix are exchanged with the other half, as a rank that loads another's rows does."""
    (weight,) = MUTANTS[mutant](transformers_oracle.model.model.layers)
    original = weight.detach().clone()
    with torch.no_grad():
        half = weight.shape[-2] // 2
        weight.copy_(torch.cat([original.narrow(-2, half, half), original.narrow(-2, 0, half)], dim=-2))
        got = [transformers_oracle.score(name, ids) for name, ids in PROMPTS.items()]
        weight.copy_(original)
    for reduced in (False, True):
        assert failed(decode.mean_kl(got, by_transformers, Installation(ranks=2, reduced=reduced)))


def test_a_wrong_scale_still_answers_but_not_as_likely(transformers_oracle, by_transformers):
    """The routed scale left out: what reads well is caught by distributions."""
    gates = [layer.mlp.gate for layer in transformers_oracle.model.model.layers if hasattr(layer.mlp, "gate")]
    for gate in gates:
        gate.routed_scaling_factor /= 2.5
    got = [transformers_oracle.score(name, ids) for name, ids in PROMPTS.items()]
    for gate in gates:
        gate.routed_scaling_factor *= 2.5
    (finding,) = failed(decode.mean_kl(got, by_transformers, Installation(reduced=True)))
    assert finding.value > 2e-2


def half_rotary(oracle, monkeypatch):
    """The indexer rotates halves of its head instead of interleaved pairs; attention itself stays right."""
    from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as modeling

    right = modeling.apply_rotary_pos_emb_interleave

    def halves(q, k, cos, sin, *args, **kwargs):
        def regroup(x):
            return torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1)

        return right(regroup(q), regroup(k), cos, sin, *args, **kwargs)

    forward = modeling.GlmMoeDsaIndexer.forward

    def with_halves(self, *args, **kwargs):
        monkeypatch.setattr(modeling, "apply_rotary_pos_emb_interleave", halves)
        try:
            return forward(self, *args, **kwargs)
        finally:
            monkeypatch.setattr(modeling, "apply_rotary_pos_emb_interleave", right)

    monkeypatch.setattr(modeling.GlmMoeDsaIndexer, "forward", with_halves)


@pytest.mark.parametrize(("length", "is_seen"), [(500, False), (640, True)])
def test_an_indexer_fault_shows_only_beyond_index_topk(length, is_seen, transformers_oracle, monkeypatch):
    """512 tokens are kept: below, nothing is dropped, and a wrong indexer changes nothing."""
    ids = tuple(map(int, np.random.default_rng(2).integers(0, 870, length)))
    want = [transformers_oracle.score("long", ids)]
    half_rotary(transformers_oracle, monkeypatch)
    got = [transformers_oracle.score("long", ids)]
    findings = decode.mean_kl(got, want, Installation(reduced=False)) + decode.nll_by_window(
        got, want, Installation(reduced=False)
    )
    assert bool(failed(findings)) == is_seen, findings
