"""A model with a parameter that nothing was loaded into is not served."""

from types import SimpleNamespace

import pytest
import torch

from glm5check.errors import CheckpointError, ServerError
from glm5check.vllm_plugin import loading
from glm5check.vllm_plugin.preconditions import listed, refuse_compiled_cpu, refuse_expert_parallel


def merged(*parts):
    return SimpleNamespace(num_elements=2, shard_weight_type=dict.fromkeys(parts, 8))


def test_a_complete_model_passes():
    loading.refuse_incomplete({"a": object(), "b.qweight_type": merged(0, 1)}, {"a", "b.qweight_type", "more"})


@pytest.mark.parametrize("parameter", [object(), merged(0, 1)])
def test_a_parameter_that_was_not_loaded_is_named(parameter):
    with pytest.raises(CheckpointError, match="1 parameters of the model were not loaded: b"):
        loading.refuse_incomplete({"a": object(), "b": parameter}, {"a"})


def test_a_merged_layer_without_one_of_its_parts_is_named():
    with pytest.raises(CheckpointError, match=r"not loaded: b\.qweight_type"):
        loading.refuse_incomplete({"b.qweight_type": merged(0)}, {"b.qweight_type"})


def test_many_missing_parameters_are_counted():
    assert listed([str(i) for i in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


def test_indexers_reach_the_layers_that_have_one():
    weights = [
        (f"model.layers.{i}.self_attn.{part}", torch.empty(0)) for i in (0, 1) for part in ("indexer.wk", "o_proj")
    ]
    kept = loading.without_absent_indexers(weights, {"model.layers.1.self_attn.indexer.wk_weights_proj.weight": None})
    assert [name for name, _ in kept] == [
        "model.layers.0.self_attn.o_proj",
        "model.layers.1.self_attn.indexer.wk",
        "model.layers.1.self_attn.o_proj",
    ]


class Model(torch.nn.Module):
    def __init__(self, **_):
        super().__init__()
        self.known = torch.nn.Parameter(torch.zeros(1))
        self.forgotten = torch.nn.Parameter(torch.zeros(1))

    def load_weights(self, weights):
        return {name for name, _ in weights}


@pytest.fixture
def build(monkeypatch):
    """vllm_gguf_plugin.loader.initialize_model with the checks installed, for a config with or without the marker."""
    from vllm_gguf_plugin import loader

    monkeypatch.setattr(loader, "initialize_model", Model)
    loading.install(("fixes applied: none",))

    def built(**config):
        parallel = SimpleNamespace(enable_expert_parallel=False)
        return loader.initialize_model(
            vllm_config=SimpleNamespace(
                model_config=SimpleNamespace(hf_config=SimpleNamespace(**config)),
                parallel_config=parallel,
                device_config=SimpleNamespace(device_type="cpu"),
                compilation_config=SimpleNamespace(mode=0),
            ),
            prefix="",
        )

    return built


def test_a_glm5_checks_itself_when_it_is_loaded(build):
    model = build(gguf_architecture="glm-dsa")
    with pytest.raises(CheckpointError, match="not loaded: forgotten"):
        model.load_weights(iter([("known", torch.zeros(1))]))
    assert model.load_weights(iter([("known", None), ("forgotten", None)])) == {"known", "forgotten"}


def test_other_models_are_left_alone(build):
    assert build().load_weights(iter([("known", None)])) == {"known"}


def test_expert_parallelism_is_refused():
    refuse_expert_parallel(SimpleNamespace(enable_expert_parallel=False))
    with pytest.raises(ServerError, match="wrong experts"):
        refuse_expert_parallel(SimpleNamespace(enable_expert_parallel=True))


@pytest.mark.parametrize(("device", "mode"), [("cpu", 0), ("cpu", None), ("cuda", 3)])
def test_eager_mode_and_gpus_pass(device, mode):
    refuse_compiled_cpu(device, mode)


def test_compiled_mode_on_a_cpu_is_refused():
    with pytest.raises(ServerError, match=r"wrong experts(.|\n)*--enforce-eager"):
        refuse_compiled_cpu("cpu", 3)
