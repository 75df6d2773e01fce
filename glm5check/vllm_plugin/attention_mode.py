"""Dense or sparse: which vLLM model serves a GLM-5 config.

GLM-5's sparse attention lets a token attend to the `index_topk` tokens that the indexer scores highest. While the
context holds at most `index_topk` tokens that is all of them, and dense multi-head latent attention is exact: the
indexer need not even be loaded. vLLM has no sparse attention on CPUs, so there dense is the only way; beyond
`index_topk` it would compute another function than GLM-5, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

from glm5check.errors import ServerError
from glm5check.glm5.dimensions import ARCHITECTURE
from glm5check.vllm_plugin.options import Attention

MARKER: Final = "gguf_architecture"
"""Attribute of the HF config by which the adapter recognises a GLM-5, whatever class serves it."""

_MODEL_TYPE: Final = "glm_moe_dsa"
_DROPPED: Final = ("layer_types", "mlp_layer_types", "qk_head_dim", "head_dim", "architectures", "model_type")
"""Besides index*: derived by GlmMoeDsaConfig, and in conflict with what DeepseekV3Config derives."""


@dataclass(slots=True)
class _Asked:
    """What the command line of the engine being configured says: tokens of --max-model-len, and --hf-config-path."""

    length: int | None = None
    config_source: str = ""


def install(wanted: Attention, *, sparse_possible: bool) -> None:
    """Makes vLLM's GGUF config parser hand out the config that `wanted` asks for.

    `sparse_possible` is whether this platform has sparse MLA at all.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm_gguf_plugin.config_parser import GGUFConfigParser

    asked = _Asked()
    create_model_config = EngineArgs.create_model_config
    parse = GGUFConfigParser.parse

    @wraps(create_model_config)
    def remember_asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        length = self.max_model_len
        asked.length = length if isinstance(length, int) and length > 0 else None
        asked.config_source = self.hf_config_path or ""
        return create_model_config(self, *args, **kwargs)

    @wraps(parse)
    def parse_for_mode(self: Any, model: Any, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], Any]:
        if str(model).endswith(".gguf") and asked.config_source:
            model = asked.config_source  # a drafter's config is asked for by the file that holds its weights
        config_dict, config = parse(self, model, *args, **kwargs)
        if config.model_type != _MODEL_TYPE:
            return config_dict, config
        topk = int(config.index_topk)
        if is_dense(wanted, asked.length, topk, sparse_possible=sparse_possible):
            refuse_long_context(asked.length, topk, sparse_possible=sparse_possible)
            config = dense_config(config)
        config.update({MARKER: ARCHITECTURE})
        return config_dict, config

    EngineArgs.create_model_config = remember_asked
    GGUFConfigParser.parse = parse_for_mode


def is_dense(wanted: Attention, length: int | None, topk: int, *, sparse_possible: bool) -> bool:
    """Whether to serve dense attention for `--max-model-len` `length` (None: not given) in tokens.

    Raises ServerError if sparse attention was demanded where there is none.
    """
    if wanted is Attention.SPARSE and not sparse_possible:
        raise ServerError(
            "sparse attention was asked for, and vLLM has none on this platform",
            where="GLM5CHECK_ATTENTION=sparse",
            do=f"unset GLM5CHECK_ATTENTION and serve at most index_topk = {topk} tokens",
        )
    if wanted is Attention.AUTO:
        return not sparse_possible or (length is not None and length <= topk)
    return wanted is Attention.DENSE


def refuse_long_context(length: int | None, topk: int, *, sparse_possible: bool) -> None:
    """Raises ServerError if `length` tokens are more than dense attention serves exactly."""
    if length is None or length <= topk:
        return
    other = " or set GLM5CHECK_ATTENTION=sparse" if sparse_possible else "; longer contexts need a GPU with sparse MLA"
    raise ServerError(
        f"GLM-5 attends to the {topk} tokens that its indexer chooses; this server runs dense attention, which is "
        f"another function beyond {topk} tokens",
        where=f"--max-model-len {length}",
        do=f"use --max-model-len {topk} or less{other}",
    )


def dense_config(config: Any) -> Any:
    """The same model as DeepseekV3Config: multi-head latent attention and routing alike, no indexer.

    The context limit becomes `index_topk`, so that vLLM's default for `--max-model-len` is exact too. Deleting
    `index_topk` from the given config is not enough: its class has a default, and vLLM asks hasattr.
    """
    from transformers import DeepseekV3Config

    values = {
        key: value for key, value in config.to_dict().items() if key not in _DROPPED and not key.startswith("index")
    }
    values["max_position_embeddings"] = min(int(config.max_position_embeddings), int(config.index_topk))
    values["architectures"] = ["DeepseekV3ForCausalLM"]
    values["scoring_func"] = getattr(config, "scoring_func", "sigmoid")
    values["topk_method"] = getattr(config, "topk_method", "noaux_tc")
    return DeepseekV3Config(**values)
