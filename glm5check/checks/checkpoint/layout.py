"""What merging and tensor parallelism do to the tensors, and whether their types survive it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from glm5check.checkpoint.audit import Checkpoint
from glm5check.checkpoint.header import TensorInfo
from glm5check.checks.checkpoint.files import MAX_LAYERS
from glm5check.checks.checkpoint.findings import failed, passed, some_of, unknown
from glm5check.glm5.tensors import Split, TensorSpec, canonical_name, expected_tensors
from glm5check.records import Finding

PLAIN: Final = {GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16}
UNSERVED: Final = {
    GGMLQuantizationType.MXFP4: "no kernel of vllm-gguf-plugin knows it",
    GGMLQuantizationType.TQ1_0: "accepted when loaded, then NotImplementedError at the first request",
    GGMLQuantizationType.TQ2_0: "accepted when loaded, then NotImplementedError at the first request",
}
DEQUANTISED_AT_LOAD: Final = ("kv_b_proj", "wk_weights_proj")
"""Merged parameters that vLLM holds in floating point whatever the file's types are."""


def types_served(checkpoint: Checkpoint) -> list[Finding]:
    """Every matrix has a type that the GGUF plugin has kernels for."""
    want = "types that vllm-gguf-plugin has kernels for"
    findings = []
    served = {*PLAIN, *_KERNEL_TYPES}
    for kind in sorted({t.qtype for t in checkpoint.tensors.values()} - served):
        names = [t.name for t in checkpoint.tensors.values() if t.qtype is kind]
        findings.append(failed("types", f"{kind.name}: {some_of(names)}", want, cause=UNSERVED.get(kind, "")))
    return findings or passed("types", some_of(_type_counts(checkpoint), 12), want)


def merged_types(checkpoint: Checkpoint) -> list[Finding]:
    """The parts of a merged parameter have types that its loader can keep apart.

    A merged linear layer keeps a type for each part, but not quantised beside unquantised. The experts' w13 keeps one
    type for gate and up: a pair of equal size, as Q4_K with Q4_0, is then decoded wrongly without any error.
    """
    want = "parts of one merged parameter in types that its loader keeps apart"
    groups = _merged_groups(checkpoint)
    if not groups:
        return unknown("merged_types", "no merged parameters are known", want)
    findings, mixed = [], 0
    for parameter, parts in groups.items():
        types = {part.qtype for part in parts}
        if len(types) == 1 or parameter.endswith(DEQUANTISED_AT_LOAD):
            continue
        got = ", ".join(f"{part.name} {part.qtype.name}" for part in parts)
        if parameter.endswith("w13"):
            sizes = {part.bytes_per_row for part in parts}
            how = "silently, as rows have equal bytes" if len(sizes) == 1 else "with a shape error"
            cause = f"vllm-gguf-plugin keeps one type for gate and up, so this fails {how}"
            findings.append(failed("merged_types", got, want, {"parameter": parameter}, cause=cause))
        elif types & PLAIN:
            cause = "vllm-gguf-plugin refuses a merged layer of which some parts are quantised"
            findings.append(failed("merged_types", got, want, {"parameter": parameter}, cause=cause))
        else:
            mixed += 1
    said = f"{mixed} of {len(groups)} groups mix quantised types, which loaders support" if mixed else "no mix"
    return findings or passed("merged_types", said, want)


def router_bias(checkpoint: Checkpoint) -> list[Finding]:
    """Router and bias are stored in float32: GLM-5's biases lie closer together than bfloat16 can tell apart."""
    want = "F32"
    wrong = [
        t
        for name, t in checkpoint.tensors.items()
        if canonical_name(name).endswith("exp_probs_b.bias") and t.qtype is not GGMLQuantizationType.F32
    ]
    findings = [failed("router_bias", t.qtype.name, want, {"tensor": t.name}) for t in wrong]
    return findings or passed("router_bias", "F32 or absent", want)


def even_split(checkpoint: Checkpoint, ranks: int) -> list[Finding]:
    """Every axis that tensor parallelism cuts is a multiple of the ranks; the vocabulary is padded instead."""
    want = f"heads, feed-forward sizes and experts' sizes that {ranks} ranks share evenly"
    dims = checkpoint.dimensions
    if dims is None:
        return unknown("even_split", "the dimensions are not known", want)
    sizes = {"heads": dims.heads, "dense_ffn": dims.dense_ffn, "expert_ffn": dims.expert_ffn}
    sizes["shared_ffn"] = dims.shared_ffn
    findings = [
        failed("even_split", f"{name} = {size}, not a multiple of {ranks}", want, {"tp": str(ranks)})
        for name, size in sizes.items()
        if size % ranks
    ]
    padded = -(-dims.vocab // 64) * 64
    padded = -(-padded // ranks) * ranks
    said = f"vocabulary {dims.vocab}" + (f" padded to {padded}" if padded != dims.vocab else "")
    return findings or passed("even_split", said, want)


def slices_at_blocks(checkpoint: Checkpoint, ranks: int) -> list[Finding]:
    """A row-parallel layer is cut along its rows' bytes, which is right only at block borders.

    vllm-gguf-plugin cuts without looking: half a block each gives garbage or a crash at the first request.
    """
    want = f"columns of each of {ranks} ranks in whole blocks"
    specs = list(_specs(checkpoint))
    if not specs:
        return unknown("slices", "the dimensions are not known", want)
    findings, seen = [], 0
    for spec, tensor in specs:
        if spec.role.split not in (Split.COLUMNS, Split.EXPERT_COLUMNS):
            continue
        seen += 1
        block = GGML_QUANT_SIZES[tensor.qtype][0]
        if tensor.columns % (block * ranks):
            share = tensor.columns / ranks / block
            got = f"{tensor.columns} columns in {tensor.qtype.name} are {share:g} blocks of {block} for each rank"
            where = {"tensor": tensor.name, "tp": str(ranks)}
            findings.append(failed("slices", got, want, where, cause=_SLICE_ADVICE))
    return findings or passed("slices", f"{seen} row-parallel tensors cut at block borders", want)


_SLICE_ADVICE: Final = "serve on fewer ranks, or quantise these tensors with blocks of 32 (Q8_0)"
_STANDARD: Final = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
_INDEXED: Final = ("IQ1_M", "IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS", "IQ4_NL")
_KERNEL_TYPES: Final = frozenset(GGMLQuantizationType[name] for name in _STANDARD + _INDEXED)


def _specs(checkpoint: Checkpoint) -> Iterator[tuple[TensorSpec, TensorInfo]]:
    """The expected tensors that are there."""
    dims = checkpoint.dimensions
    if dims is None or not 0 < dims.layers + dims.nextn_layers <= MAX_LAYERS:
        return
    found = {canonical_name(name): tensor for name, tensor in checkpoint.tensors.items()}
    for spec in expected_tensors(dims, nextn=True):
        if spec.gguf in found:
            yield spec, found[spec.gguf]


def _merged_groups(checkpoint: Checkpoint) -> dict[str, list[TensorInfo]]:
    groups: dict[str, list[TensorInfo]] = {}
    for spec, tensor in _specs(checkpoint):
        if spec.role.merged:
            groups.setdefault(spec.role.merged.replace("{layer}", str(spec.layer)), []).append(tensor)
    return groups


def _type_counts(checkpoint: Checkpoint) -> list[str]:
    kinds = [tensor.qtype.name for tensor in checkpoint.tensors.values()]
    return [f"{kinds.count(name)} {name}" for name in sorted(set(kinds))]
