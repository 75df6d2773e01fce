"""What is refused before a byte is loaded: it would load silently, and compute garbage or die at the first request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gguf import GGML_QUANT_SIZES

from glm5check.checkpoint.header import TensorInfo
from glm5check.errors import CheckpointError, ServerError
from glm5check.glm5.dimensions import Dimensions
from glm5check.glm5.tensors import Split, TensorSpec


def refuse_unservable(
    specs: Sequence[TensorSpec], tensors: Mapping[str, TensorInfo], *, ranks: int, where: str
) -> None:
    """Raises CheckpointError naming the tensors that are missing, misshapen, or cannot be split over the ranks."""
    missing = [spec.gguf for spec in specs if spec.gguf not in tensors and ".indexer." not in spec.gguf]
    if missing:
        raise CheckpointError(
            f"the GGUF set lacks {len(missing)} tensors of GLM-5: {listed(missing)}",
            where=where,
            do="convert or download the model again",
        )
    present = [(spec, tensors[spec.gguf]) for spec in specs if spec.gguf in tensors]
    misshapen = [f"{spec.gguf} is {info.shape}, not {spec.shape}" for spec, info in present if info.shape != spec.shape]
    if misshapen:
        raise CheckpointError(f"tensors contradict the file's own dimensions: {listed(misshapen)}", where=where)
    _refuse_broken_blocks(present, ranks, where)
    _refuse_mixed_experts(present, where)


def _refuse_broken_blocks(present: Sequence[tuple[TensorSpec, TensorInfo]], ranks: int, where: str) -> None:
    """Row-parallel layers are cut by bytes; a cut inside a block gives every rank bytes that mean nothing."""
    broken = []
    for spec, info in present:
        block, _ = GGML_QUANT_SIZES[info.qtype]
        if spec.role.split in (Split.COLUMNS, Split.EXPERT_COLUMNS) and spec.shape[-1] % (block * ranks):
            broken.append(f"{spec.gguf} ({spec.shape[-1]} columns of {info.qtype.name}, {block} to a block)")
    if broken:
        raise CheckpointError(
            f"{ranks} ranks cannot share whole quantisation blocks of {listed(broken)}",
            where=where,
            do="use fewer ranks, or a file that has these tensors in Q8_0",
        )


def _refuse_mixed_experts(present: Sequence[tuple[TensorSpec, TensorInfo]], where: str) -> None:
    """The plugin keeps one quant type for gate and up experts together: the second would be decoded as the first."""
    types: dict[str, set[str]] = {}
    for spec, info in present:
        if spec.role.split is Split.EXPERT_ROWS:
            types.setdefault(spec.gguf.partition(".ffn_")[0], set()).add(info.qtype.name)
    mixed = [f"{block} ({' and '.join(sorted(found))})" for block, found in types.items() if len(found) > 1]
    if mixed:
        raise CheckpointError(
            f"gate and up experts of one block have different quant types: {listed(mixed)}",
            where=where,
            do="use a file that quantises ffn_gate_exps and ffn_up_exps alike",
        )


def refuse_other_model(dimensions: Dimensions, config: Any) -> None:
    """Raises CheckpointError if the HF config builds more layers or experts than the file has weights for.

    Every other contradiction stops the loaders, whose shapes then differ; experts without weights stop nothing.
    """
    wanted = (config.num_hidden_layers, config.n_routed_experts)
    if wanted != (dimensions.layers, dimensions.experts):
        raise CheckpointError(
            f"the HF config has {wanted[0]} layers of {wanted[1]} experts, the GGUF set {dimensions.layers} of "
            f"{dimensions.experts}",
            do="give --hf-config-path the directory of the config.json that this GGUF set was converted from",
        )


def refuse_expert_parallel(parallel_config: Any) -> None:
    """Raises ServerError for --enable-expert-parallel.

    The plugin indexes a rank's experts by their global numbers: a rank other than 0 reads past its own.
    """
    if parallel_config.enable_expert_parallel:
        raise ServerError(
            "vllm-gguf-plugin takes wrong experts under expert parallelism",
            where="--enable-expert-parallel",
            do="serve with tensor parallelism only",
        )


def refuse_compiled_cpu(device: str, mode: int | None) -> None:
    """Raises ServerError for compiled mode (`mode` other than 0, vLLM's CompilationMode.NONE) on a CPU.

    Seen with vLLM 0.32.0: tokens reach wrong experts and logits become NaN. The same weights unquantised, without the
    plugin, are right when compiled.
    """
    if device == "cpu" and mode:
        raise ServerError(
            "vLLM's compiled mode routes the tokens of GGUF models to wrong experts on CPUs",
            where=f"compilation mode {int(mode)}",
            do="add --enforce-eager",
        )


def listed(names: Sequence[str], limit: int = 8) -> str:
    """The first `limit` names, and how many more there are."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
