"""Probe methods that look inside a running model: attention outputs, routers, hidden states.

Each is called on every rank through `/collective_rpc`. None may raise: an exception in one rank's method leaves the
other ranks' replies in the queue, and the next call reads them. Failures are returned as `{"error": ...}` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec

import torch

from glm5check.vllm_plugin.recapture import recapture_single_token

LARGEST_CALL: Final = 64
"""Tokens of a router call that are kept; later calls of the same size or more replace none."""

_P = ParamSpec("_P")


def returning_errors(method: Callable[_P, Any]) -> Callable[_P, Any]:
    """`method`, with an exception as its result instead."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    return call


def numbers(row: torch.Tensor) -> list[float | None]:
    """The numbers of a vector, with None for those that are none, which JSON does not have."""
    return [value if math.isfinite(value) else None for value in row.float().tolist()]


class _Writes:
    """Counts of one attention layer, on the device: a graph that was captured with `add` counts at each replay."""

    def __init__(self, example: torch.Tensor) -> None:
        self.other_tensor = 0
        self._tally = torch.zeros(3, dtype=torch.int64, device=example.device)
        # Loads the kernels for outputs like `example`: they cannot be loaded while a graph is captured.
        self.add(example.fill_(torch.nan))
        self._tally.zero_()

    def add(self, rows: torch.Tensor) -> None:
        """Count a call whose output was `rows`."""
        self._tally[0] += 1
        self._tally[1] += len(rows)
        self._tally[2] += torch.isnan(rows).flatten(1).any(dim=1).sum()

    def counts(self) -> dict[str, int]:
        calls, rows, unwritten = self._tally.tolist()
        return {"calls": calls, "rows": rows, "unwritten": unwritten, "other_tensor": self.other_tensor}


class WhiteBox:
    """Mixed into `Probe`. `watch` starts, `seen` reports and stops; between the two, the caller sends requests."""

    model_runner: Any
    rank: int

    @returning_errors
    def watch(self) -> dict[str, int]:
        """Start watching. Returns how many attention layers, routers and places there are."""
        self.seen()
        trunk = self.model_runner.model.model
        self._stops: list[Callable[[], None]] = []
        self._attention: dict[str, _Writes] = {}
        self._routers: dict[str, dict[str, Any]] = {}
        self._places: dict[str, list[float | None]] = {}
        for number, layer in enumerate(trunk.layers):
            self._watch_attention(f"blk.{number}", layer.self_attn)
        # Before what reads values back, which a stream that is being captured forbids.
        self._stops.append(recapture_single_token(self.model_runner))
        for number, layer in enumerate(trunk.layers):
            if hasattr(layer.mlp, "gate"):
                self._watch_router(f"blk.{number}", layer.mlp)
            self._watch_place(f"blk.{number}.attention", layer.self_attn)
            self._watch_place(f"blk.{number}.mlp", layer.mlp)
        self._watch_place("embedding", trunk.embed_tokens)
        self._watch_place("norm", trunk.norm)
        return {"attention": len(self._attention), "routers": len(self._routers), "places": len(trunk.layers) * 2 + 2}

    @returning_errors
    def seen(self) -> dict[str, Any]:
        """Stop watching, and return what was seen: `attention`, `routers` by layer and `places` of the last token."""
        for stop in getattr(self, "_stops", []):
            stop()
        self._stops = []
        if not hasattr(self, "_attention"):
            return {}
        attention = {layer: writes.counts() for layer, writes in self._attention.items()}
        return {"attention": attention, "routers": self._routers, "places": self._places}

    def _replace(self, owner: Any, name: str, replacement: Any) -> None:
        """Put `replacement` in place of one instance's method until `seen`."""
        setattr(owner, name, replacement)
        self._stops.append(lambda: delattr(owner, name))

    def _watch_attention(self, layer: str, attention: Any) -> None:
        """Fill the output buffer with NaN before the kernel runs; look at it and at what is returned afterwards.

        Compiled code calls `forward_impl` through a custom operator and never `forward`: what is returned there is the
        buffer, always.
        """
        mla = next(module for module in attention.modules() if hasattr(module, "forward_impl"))
        example = torch.zeros(1, mla.num_heads * mla.v_head_dim, dtype=self.model_runner.dtype)
        writes = self._attention[layer] = _Writes(example.to(next(attention.parameters()).device))
        inner, outer = mla.forward_impl, mla.forward
        written: list[torch.Tensor] = []

        def forward_impl(*args: Any, output: torch.Tensor, **kwargs: Any) -> torch.Tensor:
            metadata = args[4] if len(args) > 4 else kwargs.get("attn_metadata")
            if metadata is None or not output.is_floating_point():
                return inner(*args, output=output, **kwargs)
            output.fill_(torch.nan)
            result: torch.Tensor = inner(*args, output=output, **kwargs)
            writes.add(output[: metadata.num_actual_tokens])
            written.append(output)
            return result

        def forward(*args: Any, **kwargs: Any) -> torch.Tensor:
            written.clear()
            returned: torch.Tensor = outer(*args, **kwargs)
            if written:
                writes.other_tensor += int(written[-1].data_ptr() != returned.data_ptr())
            return returned

        self._replace(mla, "forward_impl", forward_impl)
        self._replace(mla, "forward", forward)

    def _watch_router(self, layer: str, mlp: Any) -> None:
        """Keep the first call of each router that has at most LARGEST_CALL tokens."""
        runner = mlp.experts
        router = runner.router
        bias = mlp.gate.e_score_correction_bias
        state = self._routers.setdefault(
            layer,
            {
                "bias": numbers(bias),
                "bias_dtype": str(bias.dtype).removeprefix("torch."),
                "output_scale": float(runner.routed_scaling_factor),
            },
        )
        inner = router._compute_routing

        def compute(hidden: torch.Tensor, logits: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            weights, experts = inner(hidden, logits, *args, **kwargs)
            if "logits" not in state and len(logits) <= LARGEST_CALL:
                state["logits"] = [numbers(row) for row in logits]
                state["weights"] = [numbers(row) for row in weights]
                state["expert_ids"] = experts.tolist()
            return weights, experts

        self._replace(router, "_compute_routing", compute)

    def _watch_place(self, place: str, module: torch.nn.Module) -> None:
        """Keep the last row of a module's newest output; of (output, residual) the first."""

        def hook(_module: object, _inputs: object, output: Any) -> None:
            values = output[0] if isinstance(output, tuple) else output
            self._places[place] = numbers(values.reshape(-1, values.shape[-1])[-1])

        self._stops.append(module.register_forward_hook(hook).remove)
