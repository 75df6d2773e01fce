"""Dense attention is served where it is exact, and refused where it is not."""

import json

import pytest
from transformers import AutoConfig

from fixtures.gguf_files import write_hf_files
from glm5check.errors import ServerError
from glm5check.vllm_plugin.attention_mode import dense_config, is_dense, refuse_long_context
from glm5check.vllm_plugin.options import Attention

AUTO, DENSE, SPARSE = Attention


@pytest.mark.parametrize(
    ("wanted", "length", "sparse_possible", "dense"),
    [
        (AUTO, None, False, True),  # a CPU
        (AUTO, 65, False, True),
        (AUTO, None, True, False),
        (AUTO, 64, True, True),
        (AUTO, 65, True, False),
        (DENSE, None, True, True),
        (SPARSE, 64, True, False),
    ],
)
def test_mode(wanted, length, sparse_possible, dense):
    assert is_dense(wanted, length, 64, sparse_possible=sparse_possible) is dense


def test_sparse_attention_where_there_is_none_is_refused():
    with pytest.raises(ServerError, match="has none on this platform"):
        is_dense(SPARSE, None, 64, sparse_possible=False)


@pytest.mark.parametrize("length", [None, 1, 64])
def test_a_context_that_dense_attention_serves_exactly_passes(length):
    refuse_long_context(length, 64, sparse_possible=False)


@pytest.mark.parametrize(("sparse_possible", "advice"), [(False, "a GPU"), (True, "GLM5CHECK_ATTENTION=sparse")])
def test_a_longer_context_is_refused_with_what_to_do(sparse_possible, advice):
    with pytest.raises(ServerError, match=f"another function beyond 64(.|\n)*--max-model-len 64 or less.*{advice}"):
        refuse_long_context(65, 64, sparse_possible=sparse_possible)


def test_the_dense_config_is_the_same_model_without_indexer(tmp_path):
    write_hf_files(tmp_path, model_type="glm_moe_dsa")
    sparse = AutoConfig.from_pretrained(tmp_path)
    dense = dense_config(sparse)
    assert sparse.index_topk == 64
    assert not any(key.startswith("index") for key in dense.to_dict())
    assert not hasattr(dense, "index_topk")
    assert dense.max_position_embeddings == 64
    assert dense.architectures == ["DeepseekV3ForCausalLM"]
    given = json.loads((tmp_path / "config.json").read_text())
    changed = {"architectures", "model_type", "max_position_embeddings"}
    kept = {key: value for key, value in given.items() if key not in changed and not key.startswith("index")}
    assert {key: getattr(dense, key) for key in kept} == kept
