"""Loading as a whole: what is said about it in the log, and refusal of a model that was loaded incompletely.

vLLM's models say which parameters they have loaded; the plugin's loader throws that away, and what was not loaded keeps
whatever its memory held. A server with such a model starts, is healthy, and answers garbage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import wraps
from typing import Any

import torch
from vllm.logger import init_logger

from glm5check.errors import CheckpointError
from glm5check.vllm_plugin.adapter import GlmDsaAdapter
from glm5check.vllm_plugin.preconditions import listed, refuse_compiled_cpu, refuse_expert_parallel

logger = init_logger("vllm.glm5check")


def install(announcements: tuple[str, ...]) -> None:
    """Makes every GLM-5 model that the plugin's loader builds log `announcements`, and check itself once it is loaded.

    They are logged here and not when the plugin registers, because vLLM sets up its log later than that.
    """
    from vllm_gguf_plugin import loader

    initialize_model = loader.initialize_model

    @wraps(initialize_model)
    def initialize_checked(*args: Any, vllm_config: Any, **kwargs: Any) -> torch.nn.Module:
        if not GlmDsaAdapter.matches(vllm_config.model_config.hf_config):
            return initialize_model(*args, vllm_config=vllm_config, **kwargs)
        for announcement in announcements:
            logger.warning("glm5check: %s", announcement)
        refuse_expert_parallel(vllm_config.parallel_config)
        refuse_compiled_cpu(vllm_config.device_config.device_type, vllm_config.compilation_config.mode)
        model: Any = initialize_model(*args, vllm_config=vllm_config, **kwargs)
        model.load_weights = _checked(model, model.load_weights)
        return model

    loader.initialize_model = initialize_checked


def _checked(model: torch.nn.Module, load_weights: Any) -> Any:
    @wraps(load_weights)
    def load_all(weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        parameters = dict(model.named_parameters())
        loaded: set[str] = load_weights(without_absent_indexers(weights, parameters))
        refuse_incomplete(parameters, loaded)
        return loaded

    return load_all


def without_absent_indexers(
    weights: Iterable[tuple[str, torch.Tensor]], parameters: dict[str, Any]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Leaves out the indexer's weights of layers that have no indexer: all in dense mode, some in GLM-5.2."""
    with_indexer = {name.partition(".indexer.")[0] for name in parameters if ".indexer." in name}
    for name, weight in weights:
        layer, indexer, _ = name.partition(".indexer.")
        if not indexer or layer in with_indexer:
            yield name, weight


def refuse_incomplete(parameters: dict[str, Any], loaded: set[str]) -> None:
    """Raises CheckpointError naming the parameters that no tensor, or not every part, was loaded into."""
    missing = sorted(name for name, parameter in parameters.items() if name not in loaded or _lacks_parts(parameter))
    if missing:
        raise CheckpointError(
            f"{len(missing)} parameters of the model were not loaded: {listed(missing)}",
            where="after loading the GGUF set",
            do="check the set with `glm5check audit`; the file may be of another model than the HF config",
        )


def _lacks_parts(parameter: Any) -> bool:
    """Whether a merged GGUF parameter is still without one of its parts."""
    expected = getattr(parameter, "num_elements", 1)
    return expected > 1 and len(parameter.shard_weight_type) != expected
