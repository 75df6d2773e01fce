"""Training on the CPU: language modelling with a router-bias update, then a short distillation of the indexer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from transformers import GlmMoeDsaForCausalLM

from glm5check.tiny.dataset import Batch

PEAK_RATE: Final = 2e-3
WARM_UP_STEPS: Final = 30
WEIGHT_DECAY: Final = 0.01
CLIP_NORM: Final = 1.0
BIAS_STEP: Final = 2e-3
"""Change of an expert's routing bias per step; after a few hundred steps the biases differ by a few tenths."""


def train(
    model: GlmMoeDsaForCausalLM, batches: Iterable[Batch], steps: int, *, report: Callable[[int, float], None]
) -> float:
    """Train in place and return the mean loss (nats per token) of the last tenth of the steps.

    The indexer has no gradient here and is bypassed: every row is shorter than its top-k, where it selects everything.
    """
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    losses: list[float] = []
    model.train()
    with _without_indexer(model), _balanced_routers(model) as balance:
        for step, (ids, labels) in enumerate(batches):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(input_ids=ids, labels=labels, use_cache=False).loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()
            schedule.step()
            balance()
            losses.append(loss.item())
            report(step, losses[-1])
    model.eval()
    last = losses[-max(steps // 10, 1) :]
    return sum(last) / len(last)


def _rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine down to 2 % of the peak."""
    if step < WARM_UP_STEPS:
        return (step + 1) / WARM_UP_STEPS
    done = (step - WARM_UP_STEPS) / max(steps - WARM_UP_STEPS, 1)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))


@contextmanager
def _without_indexer(model: GlmMoeDsaForCausalLM) -> Iterator[None]:
    """Let every indexer select all positions at no cost; what it would select anyway in a row shorter than top-k."""

    def select_all(hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        rows, length = hidden_states.shape[:2]
        return torch.arange(length, dtype=torch.int32).expand(rows, length, length)

    indexers = [layer.self_attn.indexer for layer in model.model.layers]
    for indexer in indexers:
        indexer.forward = select_all
    try:
        yield
    finally:
        for indexer in indexers:
            del indexer.forward


@contextmanager
def _balanced_routers(model: GlmMoeDsaForCausalLM) -> Iterator[Callable[[], None]]:
    """Count which experts are chosen; the yielded function moves each routing bias against its expert's load.

    This is how GLM and DeepSeek balance without an auxiliary loss, and why `exp_probs_b` is not zero in their files.
    """
    routers = [layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "gate")]
    loads = [torch.zeros(router.num_experts) for router in routers]

    def count(router: torch.nn.Module, _: Any, output: tuple[torch.Tensor, ...]) -> None:
        loads[routers.index(router)] += torch.bincount(output[2].flatten(), minlength=router.num_experts)

    def balance() -> None:
        for router, load in zip(routers, loads, strict=True):
            router.e_score_correction_bias += BIAS_STEP * torch.sign(load.mean() - load)
            load.zero_()

    hooks = [router.register_forward_hook(count) for router in routers]
    try:
        yield balance
    finally:
        for hook in hooks:
            hook.remove()
