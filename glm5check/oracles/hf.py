"""The first oracle: transformers' GlmMoeDsaForCausalLM in float32 on dequantised weights.

On a CPU gguf-py dequantises them, so nothing of vLLM or of this project takes part; fit for the tiny model. On a GPU,
for models of some ten billion parameters, this project's own dequantiser does, which is ten times as fast and, by
`tests/dequant`, equal to gguf-py's bit for bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import torch
from numpy.typing import NDArray

from glm5check.checkpoint.index import GgufSet
from glm5check.errors import CheckpointError
from glm5check.glm5.dimensions import Dimensions, read_hf_config
from glm5check.glm5.tensors import expected_tensors
from glm5check.records import Generation, Scores, TokenChoice

_SPLIT: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_EXPERTS: Final = {
    "experts.{expert}.gate_proj.weight": "gate",
    "experts.{expert}.up_proj.weight": "up",
    "experts.{expert}.down_proj.weight": "down",
}


class TransformersOracle:
    """The model of one GGUF set. Needs its whole weights in float32: about 4 bytes a parameter, on the CPU 8 at first.

    `index_topk` overrides how many tokens the sparse indexer keeps: a number beyond every prompt makes attention dense.
    `device` is torch's name of it.
    """

    name = "transformers"

    def __init__(self, model: Path, config: Path, *, index_topk: int | None = None, device: str = "cpu") -> None:
        self.device = device
        self.model = load_model(model, config, device=device)
        if index_topk is not None:
            for layer in self.model.model.layers:
                if layer.self_attn.indexer is not None:  # GLM-5.2 shares one among several layers
                    layer.self_attn.indexer.index_topk = index_topk
        generation = self.model.generation_config.eos_token_id
        self.end_ids = frozenset([generation] if isinstance(generation, int) else generation or [])

    def score(self, name: str, prompt_ids: Sequence[int]) -> Scores:
        """Whole distributions, float32, natural logarithm."""
        logprobs = self.logprobs(prompt_ids)[:-1]
        tokens = tuple(
            TokenChoice(token, float(row[token]), dict(enumerate(row.tolist())))
            for token, row in zip(prompt_ids[1:], logprobs, strict=True)
        )
        return Scores(prompt=name, prompt_ids=tuple(prompt_ids), tokens=tokens)

    def generate(self, name: str, prompt_ids: Sequence[int], *, max_tokens: int) -> Generation:
        ids, tokens = list(prompt_ids), []
        for _ in range(max_tokens):
            row = self.logprobs(ids)[-1]
            token = int(row.argmax())
            tokens.append(TokenChoice(token, float(row[token]), dict(enumerate(row.tolist()))))
            ids.append(token)
            if token in self.end_ids:
                break
        finish = "stop" if tokens and tokens[-1].token_id in self.end_ids else "length"
        return Generation(prompt=name, prompt_ids=tuple(prompt_ids), tokens=tuple(tokens), finish_reason=finish)

    def logprobs(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Log-probabilities of the next token after each position: float32 [len(ids), vocabulary]."""
        with torch.inference_mode():
            logits = self.model(torch.tensor([list(ids)], device=self.device), use_cache=False).logits[0].float()
            result: NDArray[np.float32] = torch.log_softmax(logits, dim=-1).cpu().numpy()
        return result

    def hidden_states(self, ids: Sequence[int]) -> dict[str, tuple[float, ...]]:
        """Outputs of every attention and MLP at the last of `ids`, by place in the order of computation.

        `embedding`, then `blk.N.attention` and `blk.N.mlp` (before they are added to the residual stream), then `norm`.
        """
        seen: dict[str, tuple[float, ...]] = {}

        def keep(place: str) -> Callable[..., None]:
            def hook(_module: object, _inputs: object, output: Any) -> None:
                values = output[0] if isinstance(output, tuple) else output
                seen[place] = tuple(values.reshape(-1, values.shape[-1])[-1].float().tolist())

            return hook

        with ExitStack() as hooks:
            for place, module in places(self.model.model).items():
                hooks.callback(module.register_forward_hook(keep(place)).remove)
            self.logprobs(ids)
        return seen


def places(trunk: Any) -> dict[str, Any]:
    """The modules whose outputs are compared, by place; `trunk` is a GLM-5 or DeepSeek-V3 trunk of any framework."""
    modules = {"embedding": trunk.embed_tokens}
    for number, layer in enumerate(trunk.layers):
        modules |= {f"blk.{number}.attention": layer.self_attn, f"blk.{number}.mlp": layer.mlp}
    return modules | {"norm": trunk.norm}


def load_model(model: Path, config: Path, *, device: str = "cpu") -> Any:
    """Build the transformers model and load every parameter strictly. Raises CheckpointError on a missing tensor."""
    from transformers import GenerationConfig, GlmMoeDsaConfig, GlmMoeDsaForCausalLM

    parsed = read_hf_config(config)
    with torch.device("meta"):  # initial weights would be overwritten, and take minutes to draw
        built = GlmMoeDsaForCausalLM(GlmMoeDsaConfig(**parsed, experts_implementation="eager")).float().eval()
    state = _state_dict(_reader(model, device), Dimensions.from_hf(parsed))
    built.load_state_dict(state, strict=True, assign=True)
    # Computed, so not in the state: the only thing that is still without numbers.
    built.model.rotary_emb = type(built.model.rotary_emb)(built.config).to(device)
    if (config / "generation_config.json").is_file():
        built.generation_config = GenerationConfig.from_pretrained(config)
    return built


def _reader(model: Path, device: str) -> Callable[[str], torch.Tensor]:
    """What gives a tensor by its GGUF name, float32 on `device`."""
    if device != "cpu":
        gguf_set = GgufSet.open(model)
        return lambda name: torch.from_numpy(gguf_set.dequantise(name)).to(device)
    tensors = read_tensors(model)

    def read(name: str) -> torch.Tensor:
        if name not in tensors:
            raise CheckpointError("the GGUF set lacks a tensor", where=name, do="run `glm5check audit` on it")
        return torch.from_numpy(tensors[name])

    return read


def read_tensors(model: Path) -> dict[str, NDArray[np.float32]]:
    """Every tensor of the set, dequantised by gguf-py to float32 in numpy order."""
    tensors: dict[str, NDArray[np.float32]] = {}
    for path in split_files(model):
        for tensor in gguf.GGUFReader(path).tensors:
            tensors[tensor.name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=True)
    return tensors


def split_files(model: Path) -> list[Path]:
    """All files of the split set that `model` is the first of; just itself if it is not split."""
    match = _SPLIT.search(model.name)
    if match is None:
        return [model]
    stem, count = model.name[: match.start()], int(match[2])
    return [model.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]


def _state_dict(read: Callable[[str], torch.Tensor], dimensions: Dimensions) -> dict[str, torch.Tensor]:
    """HF names and shapes: experts fused as [experts, gate rows then up rows, hidden], kv_b rebuilt per head."""
    state: dict[str, torch.Tensor] = {}
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for spec in expected_tensors(dimensions):
        value = read(spec.gguf).reshape(spec.shape)
        if ".attn_k_b." in spec.gguf or ".attn_v_b." in spec.gguf:
            part = parts.setdefault(spec.hf, {})
            part["k" if ".attn_k_b." in spec.gguf else "v"] = value
            if len(part) == 2:
                state[spec.hf] = join_kv_b(**parts.pop(spec.hf))
        elif (matrix := next((kind for key, kind in _EXPERTS.items() if spec.hf.endswith(key)), None)) is not None:
            name = spec.hf.partition("experts.")[0] + "experts"
            part = parts.setdefault(name, {})
            part[matrix] = value
            if len(part) == 3:
                state[f"{name}.down_proj"] = part["down"]
                state[f"{name}.gate_up_proj"] = torch.cat([part["gate"], part["up"]], dim=1)
                del parts[name]
        else:
            state[spec.hf] = value
    return state


def join_kv_b(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """HF's kv_b_proj [heads * (nope + value), kv_lora] from what llama.cpp stores.

    `k` is attn_k_b [heads, kv_lora, nope], transposed per head; `v` is attn_v_b [heads, value, kv_lora].
    """
    return torch.cat([k.transpose(1, 2), v], dim=1).reshape(-1, v.shape[-1])
