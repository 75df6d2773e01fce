"""A synthetic set is a GLM-5 set: readable, complete, deterministic, and its model computes ordinary numbers."""

import hashlib

import numpy as np
import pytest

from glm5check.checkpoint.index import GgufSet
from glm5check.errors import CheckpointError, OptionError
from glm5check.glm5.dimensions import Dimensions, read_hf_config
from glm5check.glm5.tensors import expected_tensors
from glm5check.oracles.hf import TransformersOracle
from glm5check.synth.geometry import Geometry
from glm5check.synth.mix import mix
from glm5check.synth.write import write_set

NARROW = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 256,
}
"""GLM-5's head sizes in a model that a CPU runs in a moment."""
GEOMETRY = Geometry(layers=2, dense_layers=1, experts=8, vocab=1024, nextn_layers=1, other=NARROW)


def write(folder, *, geometry=GEOMETRY, seed=0, split_bytes=2_000_000, tokenizer=None, chosen=None):
    return write_set(
        geometry,
        folder,
        mix=chosen or mix("Q4_K_XL", layers=geometry.layers),
        seed=seed,
        split_bytes=split_bytes,
        tokenizer=tokenizer,
        progress=lambda done, total: None,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write(tmp_path_factory.mktemp("synth"))


def test_the_set_holds_every_tensor_in_the_published_types(files):
    gguf_set = GgufSet.open(files[0])
    dimensions = Dimensions.from_gguf(gguf_set.metadata)
    expected = {spec.gguf: spec.shape for spec in expected_tensors(dimensions, nextn=True)}
    assert {name: info.shape for name, info in gguf_set.tensors.items()} == expected
    types = {name: gguf_set.info(name).qtype.name for name in expected}
    assert types["blk.1.ffn_gate_exps.weight"] == "Q4_K"
    assert types["blk.1.ffn_down_exps.weight"] == "Q6_K"
    assert types["blk.2.ffn_down_exps.weight"] == "Q5_K"
    assert types["blk.0.attn_output.weight"] == "Q8_0"
    assert types["blk.1.ffn_gate_inp.weight"] == "F32"


def test_file_and_config_describe_one_model(files):
    config = Dimensions.from_hf(read_hf_config(files[0].parent))
    assert Dimensions.from_gguf(GgufSet.open(files[0]).metadata).shape_differences(config) == []


def test_the_first_file_has_metadata_only_and_no_file_is_larger_than_asked(files):
    parts = GgufSet.open(files[0]).headers
    assert len(parts) > 2
    assert not parts[0].tensors
    assert all(part.size < 2_200_000 for part in parts if len(part.tensors) > 1)


def test_equal_arguments_give_equal_bytes_and_another_seed_does_not(files, tmp_path):
    def digests(paths):
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]

    assert digests(write(tmp_path / "again")) == digests(files)
    assert digests(write(tmp_path / "other", seed=1))[1:] != digests(files)[1:]


def test_a_tensor_does_not_depend_on_what_else_is_in_the_set(files, tmp_path):
    alone = write(tmp_path, geometry=Geometry(layers=2, dense_layers=1, experts=8, vocab=2048, other=NARROW))
    name = "blk.1.ffn_down_exps.weight"
    np.testing.assert_array_equal(GgufSet.open(alone[0]).raw(name), GgufSet.open(files[0]).raw(name))


def test_logits_are_finite_and_neither_flat_nor_certain(files):
    """Uniform would be ln 1024 = 6.9 nat; a model of certainties would hide every fault but the gravest."""
    oracle = TransformersOracle(files[0], files[0].parent)
    logprobs = oracle.logprobs(np.random.default_rng(0).integers(0, 900, 48).tolist())
    entropy = -(np.exp(logprobs) * logprobs).sum(axis=-1)
    assert np.isfinite(logprobs).all()
    assert 4.5 < entropy.mean() < 6.5


def test_every_id_decodes(files):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(files[0].parent)
    assert len(tokenizer) == 1024
    assert all(tokenizer.decode([index]) for index in (5, 1020, 1023))
    ids = tokenizer.encode("The cat sat on [PAD1020] mats.", add_special_tokens=False)
    assert max(ids) < 1016


def test_a_given_tokenizer_is_kept(files, tmp_path):
    again = write(tmp_path, tokenizer=files[0].parent)
    assert (again[0].parent / "tokenizer.json").read_text() == (files[0].parent / "tokenizer.json").read_text()


def test_a_tokenizer_of_more_tokens_than_rows_is_refused(files, tmp_path):
    small = Geometry(layers=1, dense_layers=0, experts=8, vocab=512, other=NARROW)
    with pytest.raises(CheckpointError, match="1024 tokens, more than the 512"):
        write(tmp_path, geometry=small, tokenizer=files[0].parent)


def test_a_directory_that_holds_a_set_is_left_alone(files):
    with pytest.raises(CheckpointError, match="GGUF files already"):
        write(files[0].parent)


def test_a_disk_that_is_too_small_is_refused_before_a_byte_is_written(tmp_path):
    endless = Geometry(layers=1000, experts=4096)
    with pytest.raises(CheckpointError, match="GB free"):
        write(tmp_path, geometry=endless)
    assert not list(tmp_path.iterdir())


def test_columns_that_are_no_whole_blocks_are_refused(tmp_path):
    """attn_k_b has 192 columns, which no K-quant divides."""
    with pytest.raises(CheckpointError, match="192 columns are no whole number of Q4_K blocks"):
        write(tmp_path, chosen=mix("Q4_K", layers=2))


@pytest.mark.parametrize(
    ("overrides", "says"),
    [(["nonsense"], "no GLOB=TYPE"), (["*.attn_output.weight=Q9"], "Q9 is no quant type"), (["=Q8_0"], "no GLOB=TYPE")],
)
def test_a_wrong_override_says_what_is_wrong(overrides, says):
    with pytest.raises(OptionError, match=says):
        mix("Q4_K_XL", layers=2, overrides=overrides)


def test_overrides_win_over_the_mix(tmp_path):
    chosen = mix("Q4_K_XL", layers=2, overrides=["*.attn_output.weight=Q6_K"])
    files = write(tmp_path, chosen=chosen)
    assert GgufSet.open(files[0]).info("blk.0.attn_output.weight").qtype.name == "Q6_K"


@pytest.mark.parametrize(
    ("sizes", "says"),
    [({"layers": 2}, "3 of 2 layers"), ({"experts": 4}, "4 experts are fewer than the 8")],
)
def test_sizes_that_contradict_each_other_are_refused(sizes, says):
    with pytest.raises(OptionError, match=says):
        Geometry(**sizes)


def test_the_oracle_of_a_gpu_reads_the_same_weights(files):
    """`cpu:0` is the CPU too, but takes the way of GPUs: this project's dequantiser instead of gguf-py."""
    prompt = list(range(40))
    one, other = (TransformersOracle(files[0], files[0].parent, device=device) for device in ("cpu", "cpu:0"))
    np.testing.assert_array_equal(one.logprobs(prompt), other.logprobs(prompt))
