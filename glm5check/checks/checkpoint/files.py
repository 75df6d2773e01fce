"""The split set, the tensor tables, and every tensor that GLM-5 has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from glm5check.checkpoint.audit import Checkpoint
from glm5check.checkpoint.header import TensorInfo
from glm5check.checks.checkpoint.findings import failed, passed, some_of, unknown
from glm5check.glm5.dimensions import Dimensions
from glm5check.glm5.tensors import canonical_name, expected_tensors, layer_of
from glm5check.records import Finding

MAX_LAYERS: Final = 1024
"""A file that claims more is malformed; no table of expected tensors is built for it."""

KV_B: Final = ("attn_k_b.weight", "attn_v_b.weight")
KV_B_JOINED: Final = "attn_kv_b.weight"


def set_complete(checkpoint: Checkpoint) -> list[Finding]:
    """Every part is there, is the part that its name says, and holds the bytes that its table lists."""
    want = "every part in its place, every tensor once, aligned, of whole blocks, inside its file"
    if not checkpoint.defects:
        return passed("set", f"{len(checkpoint.tensors)} tensors, all in place", want)
    return [failed(f"set.{d.kind}", d.what, want, {"file": d.where}, cause=f"{d.do}") for d in checkpoint.defects]


def dimensions_known(checkpoint: Checkpoint) -> list[Finding]:
    """The GGUF keys describe a GLM-5."""
    want = "every glm-dsa.* key that gives a dimension"
    if checkpoint.dimensions is None:
        return [failed("keys", checkpoint.dimensions_error, want)]
    return passed("keys", "all there", want)


def expected_tensors_there(checkpoint: Checkpoint) -> list[Finding]:
    """The set holds exactly the tensors of a GLM-5 of its dimensions, each in its shape.

    A missing tensor stays uninitialised memory in vLLM unless it belongs to a quantised linear layer.
    """
    want = "the tensors of a glm-dsa model of these dimensions"
    dims = checkpoint.dimensions
    if dims is None:
        return unknown("tensors", "the dimensions are not known", want)
    if not 0 < dims.layers + dims.nextn_layers <= MAX_LAYERS:
        return [failed("tensors", f"{dims.layers} layers", f"1 to {MAX_LAYERS} layers")]
    expected = {spec.gguf: spec for spec in expected_tensors(dims, nextn=_has_nextn(checkpoint, dims))}
    found = {canonical_name(name): tensor for name, tensor in checkpoint.tensors.items()}
    missing = [name for name in expected if name not in found and not _joined(name, found)]
    foreign = [name for name in found if name not in expected and not name.endswith(KV_B_JOINED)]
    misshapen = [name for name, spec in expected.items() if name in found and spec.shape != found[name].shape]
    findings = []
    if missing:
        findings.append(failed("tensors.missing", f"{len(missing)} missing: {some_of(missing)}", want))
    if foreign:
        findings.append(failed("tensors.foreign", f"{len(foreign)} unknown: {some_of(foreign)}", want))
    for name in misshapen:
        got, shape = found[name].shape, expected[name].shape
        findings.append(failed("tensors.shape", f"shape {got}", f"shape {shape}", {"tensor": name}))
    return findings or passed("tensors", f"{len(found)} there", want)


def one_naming(checkpoint: Checkpoint) -> list[Finding]:
    """Each layer has kv_b in one form, split in two or joined, and its router bias under one name."""
    want = "one form of kv_b and one name of the router bias in each layer, the same in all"
    forms: dict[str, set[int]] = {}
    aliases: dict[str, list[str]] = {}
    for name in checkpoint.tensors:
        aliases.setdefault(canonical_name(name), []).append(name)
        layer, tail = layer_of(name), name.partition(".")[2].partition(".")[2]
        if layer is not None and tail in KV_B:
            forms.setdefault("split", set()).add(layer)
        elif layer is not None and tail == KV_B_JOINED:
            forms.setdefault("joined", set()).add(layer)
    findings = [
        failed("naming", f"{' and '.join(names)} are the same tensor", want)
        for names in aliases.values()
        if len(names) > 1
    ]
    if len(forms) > 1:
        both = sorted(forms["split"] & forms["joined"])
        got = f"both forms of kv_b in layers {some_of(map(str, both))}" if both else "layers of both forms of kv_b"
        findings.append(failed("naming", got, want, cause="the file was put together from two conversions"))
    return findings or passed("naming", f"kv_b {next(iter(forms), 'absent')}", want)


def _has_nextn(checkpoint: Checkpoint, dims: Dimensions) -> bool:
    return any((layer_of(name) or 0) >= dims.layers for name in checkpoint.tensors)


def _joined(name: str, found: Mapping[str, TensorInfo]) -> bool:
    """Whether the half of kv_b called `name` is there in the joined form."""
    head, _, tail = name.rpartition(".attn_")
    return f"attn_{tail}" in KV_B and f"{head}.{KV_B_JOINED}" in found
