"""The plugin's loader is asked for the target only; a GLM-5 drafter is loaded from the target's files."""

from types import SimpleNamespace

import pytest
from vllm_gguf_plugin.loader import GGUFModelLoader

from glm5check.vllm_plugin import drafter


@pytest.fixture
def loader(monkeypatch):
    """A loader with the drafter's way installed, whose two ways only say that they were gone."""
    monkeypatch.setattr(GGUFModelLoader, "load_model", lambda self, vllm_config, model_config, prefix: "plugin")
    monkeypatch.setattr(drafter, "_load_drafter", lambda *_: "drafter")
    drafter.install()
    return object.__new__(GGUFModelLoader)


def config(**attributes):
    return SimpleNamespace(hf_config=SimpleNamespace(**attributes))


def test_the_target_goes_the_plugins_way(loader):
    target = config(gguf_architecture="glm-dsa")
    assert loader.load_model(SimpleNamespace(model_config=target), target) == "plugin"


def test_a_glm5_drafter_goes_its_own_way(loader):
    assert loader.load_model(SimpleNamespace(model_config=config()), config(gguf_architecture="glm-dsa")) == "drafter"


def test_other_drafters_go_the_plugins_way(loader):
    assert loader.load_model(SimpleNamespace(model_config=config()), config()) == "plugin"
