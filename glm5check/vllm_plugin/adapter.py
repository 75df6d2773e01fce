"""The weights adapter for architecture `glm-dsa`: what vllm-gguf-plugin needs to load a GLM-5 GGUF set.

It yields every tensor under its HF name, as raw quantised bytes where the vLLM layer is a GGUF layer, and dequantised
where it is not: kv_b_proj (rebuilt from attn_k_b and attn_v_b; latent attention absorbs it into other matrices), the
router, norms, and the indexer (vLLM builds half of it unquantised, and the other half as a layer whose loader knows no
quantised bytes).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm_gguf_plugin.quantization.utils import UNQUANTIZED_TYPES
from vllm_gguf_plugin.weights_adapter.base import GGUFLoadSpec
from vllm_gguf_plugin.weights_adapter.default import GGUFWeightsAdapter

from glm5check.checkpoint.header import TensorInfo
from glm5check.checkpoint.index import GgufSet
from glm5check.errors import CheckpointError
from glm5check.glm5.dimensions import ARCHITECTURE, Dimensions
from glm5check.glm5.tensors import Split, TensorSpec, canonical_name, expected_tensors
from glm5check.vllm_plugin.attention_mode import MARKER
from glm5check.vllm_plugin.preconditions import refuse_other_model, refuse_unservable

_EXPERTS: Final = (Split.EXPERT_ROWS, Split.EXPERT_COLUMNS)
_DEQUANTISED: Final = (".indexer.", ".kv_b_proj.", ".mlp.gate.", ".eh_proj.")


class GlmDsaAdapter(GGUFWeightsAdapter):
    """Loads GLM-5, 5.1 and 5.2 from a GGUF set: the trunk, or the multi-token-prediction block for a drafter."""

    _set: GgufSet
    _infos: dict[str, TensorInfo]
    _specs: list[TensorSpec]
    _drafter: bool

    @classmethod
    def matches(cls, config: Any) -> bool:
        return getattr(config, MARKER, None) == ARCHITECTURE

    def prepare_loading(self, model_path: str, model_config: Any) -> GGUFLoadSpec:
        """Reads the set's index and says which vLLM modules are not GGUF layers.

        Raises CheckpointError for a set that is incomplete or that cannot be served on this many ranks.
        """
        self._set = GgufSet.open(Path(model_path))
        self._infos = {canonical_name(name): info for name, info in self._set.tensors.items()}
        dimensions = Dimensions.from_gguf(self._set.metadata)
        self._drafter = model_config.hf_config.model_type.endswith("_mtp")
        self._specs = drafter_tensors(dimensions) if self._drafter else list(expected_tensors(dimensions))
        refuse_unservable(self._specs, self._infos, ranks=get_tensor_model_parallel_world_size(), where=model_path)
        refuse_other_model(dimensions, model_config.hf_config)
        names = [spec.hf.removesuffix(".weight") for spec in self._specs if not self._is_gguf_layer(spec)]
        self.load_spec = GGUFLoadSpec(weights_source=[model_path], unquantized_modules=names)
        return self.load_spec

    def prepare_weights(self, model_config: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Every weight of the model under its HF name, in the order of the tensor table."""
        for spec in self._specs:
            if spec.gguf not in self._infos:  # an indexer's: dense attention does without
                continue
            if spec.gguf.endswith("attn_k_b.weight"):
                values = spec.gguf.removesuffix("attn_k_b.weight") + "attn_v_b.weight"
                yield spec.hf, join_kv_b(self._weights(spec.gguf), self._weights(values))
            elif spec.gguf.endswith("attn_v_b.weight"):
                continue
            elif spec.role.split in _EXPERTS:
                yield from self._expert_weights(spec, model_config.dtype)
            elif self._is_gguf_layer(spec):
                info = self._infos[spec.gguf]
                yield from _quantised(spec.hf, info.qtype, torch.tensor(self._set.raw(info.name)))
            else:
                yield spec.hf, self._weights(spec.gguf)

    def _is_gguf_layer(self, spec: TensorSpec) -> bool:
        """Whether vLLM is to build the GGUF kind of layer for this tensor. Routed experts always are one."""
        if spec.role.split in _EXPERTS:
            return True
        info = self._infos.get(spec.gguf)
        if info is None or info.qtype in UNQUANTIZED_TYPES or not spec.role.is_matrix:
            return False
        if self._drafter and spec.role.gguf == "token_embd.weight":  # vLLM builds a drafter's embedding unquantised
            return False
        return not any(part in spec.hf for part in _DEQUANTISED)

    def _weights(self, name: str) -> torch.Tensor:
        return torch.from_numpy(self._set.dequantise(self._infos[name].name))

    def _expert_weights(self, spec: TensorSpec, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        """The stacked experts one by one. The plugin multiplies unquantised ones in the activations' dtype."""
        info = self._infos[spec.gguf]
        plain = self._weights(spec.gguf).to(dtype) if info.qtype in UNQUANTIZED_TYPES else None
        raw = self._set.raw(info.name)
        for expert in range(spec.shape[0]):
            rows = torch.tensor(raw[expert]) if plain is None else plain[expert]
            yield from _quantised(spec.hf.replace("{expert}", str(expert)), info.qtype, rows)


def drafter_tensors(dimensions: Dimensions) -> list[TensorSpec]:
    """The tensors of the multi-token-prediction block, and the embedding and output that it shares with the trunk.

    vLLM gives a drafter both of its own at first. Raises CheckpointError if the model has no such block.
    """
    if not dimensions.nextn_layers:
        raise CheckpointError(
            "the GGUF set holds no multi-token-prediction block to draft with",
            where="key glm-dsa.nextn_predict_layers",
            do="leave out the method mtp of --speculative-config, or use a file that has the block",
        )
    specs = list(expected_tensors(dimensions, nextn=True))
    block = [spec for spec in specs if spec.layer is not None and spec.layer >= dimensions.layers]
    embedding, output = (next(s for s in specs if s.gguf == name) for name in ("token_embd.weight", "output.weight"))
    heads = [
        replace(output, hf=f"model.layers.{layer}.shared_head.head.weight")
        for layer in range(dimensions.layers, dimensions.layers + dimensions.nextn_layers)
    ]
    return [embedding, *block, *heads]


def join_kv_b(keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """HF's kv_b_proj [heads * (nope + value), kv_lora] from llama.cpp's two parts.

    `keys` is attn_k_b [heads, kv_lora, nope], transposed by the converter; `values` is attn_v_b [heads, value,
    kv_lora]. HF keeps the key rows and the value rows of one head together.
    """
    joined = torch.cat([keys.transpose(1, 2), values], dim=1)
    return joined.reshape(-1, joined.shape[-1])


def _quantised(hf: str, qtype: int, raw: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    # Only the last part is renamed: a module may have `weight` in its own name (indexer.weights_proj).
    module = hf.removesuffix(".weight")
    yield f"{module}.qweight_type", torch.tensor(int(qtype))
    yield f"{module}.qweight", raw
