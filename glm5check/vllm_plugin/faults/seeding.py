"""The places that faults are seeded at: config, weights, attention calls, expert choice, forward pass, template."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from importlib.util import find_spec
from typing import Any

import torch


def edit_config(edit: Callable[[Any], None]) -> None:
    """Let `edit` change the HF config that vLLM builds the model from."""
    from vllm_gguf_plugin.config_parser import GGUFConfigParser

    parse = GGUFConfigParser.parse

    @wraps(parse)
    def parse_and_edit(self: Any, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], Any]:
        config_dict, config = parse(self, *args, **kwargs)
        edit(config)
        return config_dict, config

    GGUFConfigParser.parse = parse_and_edit


def around_attention(change: Callable[[Callable[[torch.Tensor], None], torch.Tensor, Any], None]) -> None:
    """Run `change(run, output, metadata)` in place of each attention call; `run(buffer)` is the right call.

    `output` is [tokens, heads * value], the tensor that the layer returns. Profiling runs are left alone.
    """
    from vllm.model_executor.layers.attention.mla_attention import MLAAttention

    forward_impl = MLAAttention.forward_impl

    @wraps(forward_impl)
    def changed(self: Any, *args: Any, output: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        metadata = args[4] if len(args) > 4 else kwargs.get("attn_metadata")
        if metadata is None:
            result: torch.Tensor = forward_impl(self, *args, output=output, **kwargs)
            return result
        change(lambda buffer: forward_impl(self, *args, output=buffer, **kwargs), output, metadata)
        return output

    MLAAttention.forward_impl = changed


def after_routing(change: Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """Replace the weights of chosen experts by `change(router, logits, experts, weights)`.

    `logits` are [tokens, experts]; `experts` and `weights` are [tokens, experts used].
    """
    from vllm.model_executor.layers.fused_moe.router.fused_topk_bias_router import FusedTopKBiasRouter
    from vllm.model_executor.layers.fused_moe.router.grouped_topk_router import GroupedTopKRouter

    routers = [FusedTopKBiasRouter, GroupedTopKRouter]
    if find_spec("vllm.model_executor.layers.fused_moe.router.cpu_router") is not None:  # vLLM 0.24 has none
        from vllm.model_executor.layers.fused_moe.router.cpu_router import CPURouter

        routers.append(CPURouter)

    def wrapped(compute: Any) -> Any:
        @wraps(compute)
        def changed(self: Any, hidden: torch.Tensor, logits: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            weights, experts = compute(self, hidden, logits, *args, **kwargs)
            return change(self, logits, experts, weights), experts

        return changed

    for router in routers:
        router._compute_routing = wrapped(router._compute_routing)


def around_forward(change: Callable[[Callable[..., Any], torch.Tensor, torch.Tensor, bool], Any]) -> None:
    """Run `change(run, ids, positions, is_decode)` in place of each forward pass of the trunk.

    `ids` and `positions` are int64 [tokens]; `is_decode` is whether every sequence has one new token, past its start.
    """
    from vllm.model_executor.models.deepseek_v2 import DeepseekV2Model

    forward = DeepseekV2Model.forward

    @wraps(forward)
    def changed(self: Any, ids: torch.Tensor, positions: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        def run(new_positions: torch.Tensor) -> Any:
            return forward(self, ids, new_positions, *args, **kwargs)

        steps = positions[1:] - positions[:-1]
        is_decode = bool((positions > 0).all()) and not bool((steps == 1).any())
        return change(run, ids, positions, is_decode)

    DeepseekV2Model.forward = changed


def around_template(change: Callable[[str], str]) -> None:
    """Let `change` rewrite every conversation after the chat template was applied."""
    from transformers import PreTrainedTokenizerBase

    apply_chat_template = PreTrainedTokenizerBase.apply_chat_template

    @wraps(apply_chat_template)
    def changed(self: Any, *args: Any, tokenize: bool = True, **kwargs: Any) -> Any:
        kwargs.pop("return_dict", None)
        text = change(str(apply_chat_template(self, *args, tokenize=False, **kwargs)))
        return self(text, add_special_tokens=False)["input_ids"] if tokenize else text

    PreTrainedTokenizerBase.apply_chat_template = changed


def change_weights(change: Callable[[str, torch.Tensor], tuple[str, torch.Tensor]]) -> None:
    """Let `change` rename or replace each weight that the adapter yields, under its HF name."""
    from glm5check.vllm_plugin.adapter import GlmDsaAdapter

    adapter: Any = GlmDsaAdapter
    prepare_weights = adapter.prepare_weights

    @wraps(prepare_weights)
    def changed(self: Any, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        for name, weight in prepare_weights(self, *args, **kwargs):
            yield change(name, weight)

    adapter.prepare_weights = changed
