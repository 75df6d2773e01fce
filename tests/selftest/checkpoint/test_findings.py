"""What the checks of a checkpoint say, case by case; the approved words are in findings.txt."""

from dataclasses import replace
from pathlib import Path

import pytest
from gguf.constants import GGMLQuantizationType as Q

from fixtures.gguf_files import DIMENSIONS, gguf_keys, usual_type
from glm5check.checkpoint.audit import Checkpoint, HfFiles
from glm5check.checkpoint.contents import TensorContent
from glm5check.checkpoint.header import TensorInfo
from glm5check.checkpoint.index import Defect
from glm5check.checks import checkpoint as checks
from glm5check.checks.checkpoint.config import FIXED
from glm5check.glm5.tensors import expected_tensors
from tests.selftest.approved import approved, told

FILE = Path("glm-5.gguf")
GATE, UP, DOWN = (f"blk.1.ffn_{part}_exps.weight" for part in ("gate", "up", "down"))
HF_CONFIG = {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "hidden_size": 256,
    "vocab_size": 320,
    "num_attention_heads": 16,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
    "intermediate_size": 512,
    "moe_intermediate_size": 512,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "max_position_embeddings": 4096,
    "index_n_heads": 2,
    "index_head_dim": 64,
    "index_topk": 64,
    "indexer_rope_interleave": True,
    "tie_word_embeddings": False,
}
METADATA = gguf_keys(DIMENSIONS) | {"tokenizer.ggml.tokens": tuple(f"t{i}" for i in range(320))}
HF = HfFiles(config=HF_CONFIG, generation={"eos_token_id": [1, 2]}, tokenizer_ids=320)


def info(name, qtype, shape):
    return TensorInfo(name=name, qtype=qtype, shape=shape, file=FILE, offset=0)


def tensors(specs=None, **types):
    """The table of a healthy set; `types` go by the name of a tensor with `_` for `.`."""
    specs = {spec.gguf: spec for spec in specs or expected_tensors(DIMENSIONS)}
    chosen = {name: types.get(name.replace(".", "_"), usual_type(spec)) for name, spec in specs.items()}
    return {name: info(name, chosen[name], spec.shape) for name, spec in specs.items()}


TABLE = tensors()
WITH_BLOCK = replace(DIMENSIONS, nextn_layers=1)
HEALTHY = Checkpoint(
    file=FILE,
    metadata=METADATA,
    tensors=TABLE,
    defects=(),
    dimensions=DIMENSIONS,
    dimensions_error="",
    hf=HF,
)
UNKNOWN = replace(HEALTHY, dimensions=None, dimensions_error="key glm-dsa.block_count is missing (GGUF)")


def without(*names, table=None):
    return {name: tensor for name, tensor in (table or TABLE).items() if name not in names}


def renamed(**names):
    """The table with tensors renamed, `_` for `.` on the left."""
    by_name = {old.replace(".", "_"): old for old in TABLE}
    new = {by_name[old]: name for old, name in names.items()}
    return {new.get(name, name): replace(t, name=new.get(name, name)) for name, t in TABLE.items()}


def of(check, *arguments, **changes):
    return lambda: check(replace(HEALTHY, **changes), *arguments)


def sized(**changes):
    return replace(DIMENSIONS, **changes)


def told_by_hf(**changes):
    """A checkpoint whose HF config has these keys; None removes one."""
    config = {key: value for key, value in (HF_CONFIG | changes).items() if value is not None}
    return replace(HF, config=config)


def keyed(**keys):
    """GGUF keys with `_` for `.`, below `tokenizer.ggml.` or `glm-dsa.rope.scaling.`; None removes one."""
    scaling = {"type", "factor"}
    names = {key: (f"glm-dsa.rope.scaling.{key}" if key in scaling else f"tokenizer.ggml.{key}") for key in keys}
    changed = METADATA | {names[key]: value for key, value in keys.items()}
    return {key: value for key, value in changed.items() if value is not None}


KV_A, KV_B = "blk.1.attn_k_b.weight", "blk.1.attn_v_b.weight"
JOINED = {"blk.1.attn_kv_b.weight": info("blk.1.attn_kv_b.weight", Q.Q8_0, (1024, 64))}
BIAS = "blk.1.exp_probs_b.bias"
THERE, NAMING, TYPES, MERGED = (
    checks.expected_tensors_there,
    checks.one_naming,
    checks.types_served,
    checks.merged_types,
)

WHOLE = {
    "every part is in place": of(checks.set_complete),
    "two parts have defects": of(
        checks.set_complete,
        defects=(
            Defect(kind="cut", what="the file ends", where="a.gguf", do="load it again"),
            Defect(kind="part", what="it is part 3", where="b.gguf", do="rename it"),
        ),
    ),
    "the keys give the dimensions": of(checks.dimensions_known),
    "the keys do not give them": lambda: checks.dimensions_known(UNKNOWN),
    "every tensor is there": of(THERE),
    "one tensor is missing": of(THERE, tensors=without("output_norm.weight")),
    "six tensors are missing": of(THERE, tensors=without(*sorted(TABLE)[:6])),
    "four tensors are missing": of(THERE, tensors=without(*sorted(TABLE)[:4])),
    "a tensor is unknown": of(THERE, tensors=TABLE | {"norm.weight": info("norm.weight", Q.F32, (256,))}),
    "a shape is another one": of(THERE, tensors=TABLE | {KV_A: replace(TABLE[KV_A], shape=(16, 32, 64))}),
    "kv_b is joined": of(THERE, tensors=without(KV_A, KV_B) | JOINED),
    "kv_b is joined in another layer": of(
        THERE, tensors=without(KV_A, KV_B) | {"blk.0.attn_kv_b.weight": JOINED["blk.1.attn_kv_b.weight"]}
    ),
    "the dimensions of tensors are not known": lambda: THERE(UNKNOWN),
    "there are no layers": of(THERE, dimensions=sized(layers=0)),
    "there are as many layers as may be": of(THERE, dimensions=sized(layers=1023, nextn_layers=1, dense_layers=1023)),
    "there are too many layers": of(THERE, dimensions=sized(layers=1024, nextn_layers=1)),
    "a prediction block is there though the keys have none": of(
        THERE, tensors=TABLE | {"blk.2.nextn.enorm.weight": info("blk.2.nextn.enorm.weight", Q.F32, (256,))}
    ),
    "a prediction block is there": of(
        THERE, dimensions=WITH_BLOCK, tensors=tensors(specs=expected_tensors(WITH_BLOCK, nextn=True))
    ),
    "a prediction block lacks a tensor": of(
        THERE,
        dimensions=WITH_BLOCK,
        tensors=without("blk.2.attn_norm.weight", table=tensors(specs=expected_tensors(WITH_BLOCK, nextn=True))),
    ),
    "there is one layer": of(
        THERE, dimensions=sized(layers=1), tensors=tensors(specs=expected_tensors(sized(layers=1)))
    ),
    "a prediction block may be missing": of(THERE, dimensions=sized(nextn_layers=1)),
    "there is one naming": of(NAMING),
    "kv_b is joined in all layers": of(NAMING, tensors=JOINED),
    "there is no kv_b": of(NAMING, tensors={}),
    "one layer has both forms of kv_b": of(NAMING, tensors=TABLE | JOINED),
    "two layers have both forms of kv_b": of(
        NAMING,
        tensors=TABLE | JOINED | {"blk.0.attn_kv_b.weight": info("blk.0.attn_kv_b.weight", Q.Q8_0, (1024, 64))},
    ),
    "layers have other forms of kv_b": of(NAMING, tensors=without(KV_A, KV_B) | JOINED),
    "a router bias has two names": of(NAMING, tensors=TABLE | {"blk.1.exp_probs_b": info("x", Q.F32, (4,))}),
}
SPLIT = {
    "every type is served": of(TYPES),
    "two types are not served": of(
        TYPES,
        tensors=tensors(blk_1_ffn_down_exps_weight=Q.MXFP4, blk_0_ffn_up_weight=Q.TQ1_0, blk_0_ffn_down_weight=Q.TQ2_0),
    ),
    "a type without a known reason is not served": of(TYPES, tensors=tensors(blk_1_ffn_down_exps_weight=Q.Q8_K)),
    "fourteen types are counted": of(
        TYPES,
        tensors={
            f"t{i}": info(f"t{i}", kind, (256,))
            for i, kind in enumerate(
                [Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ1_M, Q.F16, Q.BF16]
            )
        },
    ),
    "no merged layer mixes types": of(MERGED),
    "gate and up have types of equal size": of(MERGED, tensors=tensors(blk_1_ffn_up_exps_weight=Q.Q4_0)),
    "gate and up have types of other sizes": of(MERGED, tensors=tensors(blk_1_ffn_up_exps_weight=Q.Q6_K)),
    "a merged layer is half quantised": of(MERGED, tensors=tensors(blk_0_ffn_up_weight=Q.F16)),
    "a merged layer mixes quantised types": of(MERGED, tensors=tensors(blk_0_ffn_up_weight=Q.Q4_K)),
    "a layer that is dequantised mixes types": of(MERGED, tensors=tensors(blk_0_attn_k_b_weight=Q.F16)),
    "a layer that is dequantised comes before one that may not mix": of(
        MERGED, tensors=tensors(blk_0_attn_k_b_weight=Q.F16, blk_1_ffn_up_exps_weight=Q.Q6_K)
    ),
    "merged layers are not known": lambda: MERGED(UNKNOWN),
    "merged layers of no layer": of(MERGED, dimensions=sized(layers=0)),
    "merged layers of too many layers": of(MERGED, dimensions=sized(layers=1025)),
    "the router bias is F32": of(checks.router_bias),
    "the router bias is F16": of(checks.router_bias, tensors=tensors(blk_1_exp_probs_b_bias=Q.F16)),
    "sixteen ranks divide everything": of(checks.even_split, 16),
    "three ranks do not": of(checks.even_split, 3),
    "the vocabulary is padded to blocks": of(checks.even_split, 4, dimensions=sized(vocab=321)),
    "the vocabulary is padded to ranks": of(checks.even_split, 3, dimensions=sized(heads=3, dense_ffn=3, expert_ffn=3)),
    "the division is not known": lambda: checks.even_split(UNKNOWN, 2),
    "two ranks cut at block borders": of(checks.slices_at_blocks, 2),
    "four ranks cut inside of blocks": of(checks.slices_at_blocks, 4),
    "one layer is cut": of(checks.slices_at_blocks, 2, dimensions=sized(layers=1)),
    "no layer is cut": of(checks.slices_at_blocks, 2, dimensions=sized(layers=0)),
    "one layer and a prediction block are cut": of(
        checks.slices_at_blocks, 2, dimensions=sized(layers=1, nextn_layers=1)
    ),
    "a prediction block is cut": of(
        checks.slices_at_blocks,
        2,
        dimensions=WITH_BLOCK,
        tensors=tensors(specs=expected_tensors(WITH_BLOCK, nextn=True)),
    ),
    "as many layers as may be are cut": of(
        checks.slices_at_blocks, 2, dimensions=sized(layers=1023, nextn_layers=1, dense_layers=1023)
    ),
    "the cuts are not known": lambda: checks.slices_at_blocks(UNKNOWN, 2),
    "there is nothing to cut": of(checks.slices_at_blocks, 2, tensors={}),
}


def contents(**changes):
    first, second = (
        TensorContent(tensor=TABLE[name], blocks=8, non_finite=0, all_zero=False, largest=2.5) for name in (GATE, UP)
    )
    return {"contents": (first, replace(second, **changes))}


AGREES, COMPLETE, TIED, VOCABULARY, ENDS = (
    checks.config_agrees,
    checks.config_complete,
    checks.tied_head,
    checks.vocabulary,
    checks.end_tokens,
)
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}
BESIDE = {
    "config and keys agree": of(AGREES),
    "three values differ": of(AGREES, hf=told_by_hf(num_hidden_layers=3, scoring_func="softmax", rms_norm_eps=1e-6)),
    "a value differs by rounding": of(AGREES, hf=told_by_hf(rms_norm_eps=1e-5 * (1 + 5e-7))),
    "a prediction block is stated by the config alone": of(AGREES, hf=told_by_hf(num_nextn_predict_layers=1)),
    "a prediction block is stated by the keys alone": of(AGREES, dimensions=sized(nextn_layers=1)),
    "the config is of another class": of(AGREES, hf=told_by_hf(architectures=["Other"])),
    "the config has a value of another kind": of(AGREES, hf=told_by_hf(hidden_size="wide")),
    "there is no config to agree with": of(AGREES, hf=None),
    "there are no keys to agree with": lambda: AGREES(UNKNOWN),
    "both scale the rope alike": of(
        AGREES, hf=told_by_hf(rope_parameters=YARN), metadata=keyed(type="yarn", factor=4.0)
    ),
    "the config alone scales the rope": of(AGREES, hf=told_by_hf(rope_parameters=YARN)),
    "the keys alone scale the rope": of(AGREES, metadata=keyed(type="yarn", factor=4.0)),
    "both scale the rope otherwise": of(
        AGREES, hf=told_by_hf(rope_parameters=YARN | {"rope_type": "linear"}), metadata=keyed(type="yarn", factor=4.0)
    ),
    "the factors of the rope differ": of(
        AGREES, hf=told_by_hf(rope_parameters=YARN | {"factor": 8.0}), metadata=keyed(type="yarn", factor=4.0)
    ),
    "the config gives no factor of the rope": of(
        AGREES,
        hf=told_by_hf(rope_parameters={"type": "yarn", "rope_theta": 1e6}),
        metadata=keyed(type="yarn", factor=1.0),
    ),
    "the keys give no factor of the rope": of(AGREES, hf=told_by_hf(rope_parameters=YARN), metadata=keyed(type="yarn")),
    "the rope scaling has its old name": of(
        AGREES, hf=told_by_hf(rope_parameters=None, rope_theta=1e6, rope_scaling={"type": "yarn", "factor": 2.0})
    ),
    "the rope scaling has no type": of(AGREES, hf=told_by_hf(rope_parameters={"rope_theta": 1e6})),
    "the rope scaling has no type where the keys scale": of(
        AGREES, hf=told_by_hf(rope_parameters={"rope_theta": 1e6}), metadata=keyed(type="yarn", factor=4.0)
    ),
    "the rope scaling is no table": of(
        AGREES, hf=told_by_hf(rope_parameters=None, rope_theta=1e6, rope_scaling="yarn")
    ),
    "the rope scaling is stated as none": of(
        AGREES, hf=told_by_hf(rope_parameters={"rope_type": None, "rope_theta": 1e6})
    ),
    "the config states everything": of(COMPLETE),
    "the config states nothing": of(COMPLETE, hf=replace(HF, config={})),
    "the config states other rules": of(COMPLETE, hf=told_by_hf(**dict.fromkeys(FIXED, "other"))),
    "there is no config to be complete": of(COMPLETE, hf=None),
    "the head is its own": of(TIED),
    "the head is tied and has its own": of(TIED, hf=told_by_hf(tie_word_embeddings=True)),
    "the head is tied and has none": of(
        TIED, hf=told_by_hf(tie_word_embeddings=True), tensors=without("output.weight")
    ),
    "the head is not tied and has none": of(TIED, tensors=without("output.weight")),
    "the config does not say whether the head is tied": of(TIED, hf=told_by_hf(tie_word_embeddings=None)),
    "there is no config to tie": of(TIED, hf=None),
    "every token has a row": of(VOCABULARY),
    "there are more rows than ids": of(VOCABULARY, hf=replace(HF, tokenizer_ids=300)),
    "the file has more tokens than rows": of(VOCABULARY, metadata=keyed(tokens=("t",) * 321)),
    "both have more than rows": of(VOCABULARY, metadata=keyed(tokens=("t",) * 319), hf=replace(HF, tokenizer_ids=321)),
    "there is no tokenizer": of(VOCABULARY, hf=replace(HF, tokenizer_ids=None)),
    "there is no tokenizer and the file is wrong": of(VOCABULARY, hf=None, metadata=keyed(tokens=("t",))),
    "there is no embedding": of(VOCABULARY, tensors=without("token_embd.weight")),
    "there are no tokens": of(VOCABULARY, metadata=keyed(tokens=None)),
    "every end token ends": of(ENDS),
    "a single end token is no list": of(
        ENDS, hf=replace(HF, generation={"eos_token_id": 1}), metadata=keyed(eot_token_id=None)
    ),
    "end tokens are missing": of(
        ENDS, hf=replace(HF, generation={"eos_token_id": [7, "x"]}), metadata=keyed(eom_token_id=3)
    ),
    "end tokens come from the config": of(ENDS, hf=replace(told_by_hf(eos_token_id=[1, 2, 3]), generation=None)),
    "a generation config without ends goes before the config": of(
        ENDS, hf=replace(told_by_hf(eos_token_id=[1, 2]), generation={})
    ),
    "end tokens beyond the vocabulary are missing": of(
        ENDS, metadata=keyed(eos_token_id=320, eot_token_id=-1, eom_token_id=319)
    ),
    "end tokens are missing and the file has no tokens": of(ENDS, metadata=keyed(eos_token_id=9, tokens=None)),
    "the first token is an end that is missing": of(ENDS, metadata=keyed(eos_token_id=0)),
    "the file names no end token": of(ENDS, metadata=keyed(eos_token_id=None, eot_token_id=None)),
    "there is no config with ends": of(ENDS, hf=None),
    "every scale is finite": of(checks.finite_scales, **contents()),
    "a scale is not finite": of(checks.finite_scales, **contents(non_finite=3)),
    "no tensor is dead": of(checks.no_dead_tensors, **contents()),
    "a tensor is dead": of(checks.no_dead_tensors, **contents(all_zero=True)),
    "a bias of zeros is not dead": of(checks.no_dead_tensors, **contents(all_zero=True, tensor=TABLE[BIAS])),
    "weights fit float16": of(checks.float16_range, **contents(largest=65504.0)),
    "weights do not fit float16": of(checks.float16_range, **contents(largest=65505.0)),
    "weights of one tensor were not read": of(checks.float16_range, **contents(largest=None)),
    "no weights were read": of(checks.float16_range),
}
CASES = WHOLE | SPLIT | BESIDE


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]


def test_an_audit_makes_every_check_and_reads_values_only_where_there_are_some():
    named = [finding.check.removeprefix("checkpoint.") for finding in checks.audit(HEALTHY, 2)]
    assert named == [
        "set",
        "keys",
        "tensors",
        "naming",
        "types",
        "merged_types",
        "router_bias",
        "even_split",
        "slices",
        "config",
        "defaults",
        "tied_head",
        "vocabulary",
        "end_tokens",
    ]
    read = [finding.check for finding in checks.audit(replace(HEALTHY, **contents()), 2)]
    assert read[14:] == ["checkpoint.scales", "checkpoint.dead", "checkpoint.float16"]
    assert {finding.outcome for finding in checks.audit(HEALTHY, 2)} == {"passed"}
    uneven = [finding.check for finding in checks.audit(HEALTHY, 3) if finding.outcome == "failed"]
    assert set(uneven) == {"checkpoint.even_split", "checkpoint.slices"}
