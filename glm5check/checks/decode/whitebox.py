"""What a probe saw inside the server: rows that attention wrote, and how routers chose and weighted experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from glm5check import tolerances
from glm5check.checks.causes import Installation
from glm5check.checks.decode.judging import judged, nothing
from glm5check.glm5.dimensions import Dimensions
from glm5check.records import AttentionWrites, Finding, RouterCall

_Floats = NDArray[np.float64]

_UNWRITTEN: Final = (
    "the kernel leaves rows of its output buffer as they were: a padded or zero-length sequence, or a write to another "
    "tensor than the buffer"
)
_OTHER_TENSOR: Final = (
    "the backend writes into one tensor and returns another (a copy, a resized or a re-allocated one): the next layer "
    "reads what nobody wrote"
)

_UNSEEN: Final = (
    "the others replay graphs that cannot be captured anew; --glm5-serve-arg=--enforce-eager serves without graphs"
)


def attention_outputs(watched: Sequence[AttentionWrites], steps: int) -> list[Finding]:
    """Every row of every attention layer's output was written, and the tensor returned is the one that was written.

    The buffers were filled with NaN before each call. A layer that was seen in fewer calls than the `steps` of the
    watched request was not seen enough to pass. Cannot see a row that is written wrongly.
    """
    check = "decode.attention_outputs"
    findings = []
    for seen in watched:
        wrong = [
            *([f"{seen.unwritten} of {seen.rows} rows unwritten"] if seen.unwritten else []),
            *([f"another tensor returned in {seen.other_tensor} of {seen.calls} calls"] if seen.other_tensor else []),
        ]
        where = {"layer": seen.layer, "rank": str(seen.rank)}
        if seen.calls < steps and not wrong:
            got = f"{seen.layer} was seen in {seen.calls} of {steps} steps on rank {seen.rank}: {_UNSEEN}"
            findings.append(nothing(check, got))
            continue
        findings.append(
            judged(
                check,
                not wrong,
                got=" and ".join(wrong) or f"{seen.rows} rows written in {seen.calls} calls",
                want="every row written, and the written tensor returned",
                where=where,
                cause=_UNWRITTEN if seen.unwritten else _OTHER_TENSOR,
            )
        )
    return findings or [nothing(check, "no attention layer was watched")]


def router_weights(
    calls: Sequence[RouterCall],
    dimensions: Dimensions,
    biases: Mapping[str, Sequence[float]],
    installation: Installation,
) -> list[Finding]:
    """Each router has the file's bias in float32, and chooses and weights experts as GLM-5 does.

    GLM-5: scores are sigmoid(logits); the experts with the largest score + bias are used; their weights are their
    scores without bias, made to sum to 1, times the routed scale. `biases` maps layer names to the file's
    `exp_probs_b`. The logits themselves are taken as given.
    """
    check = "decode.router_weights"
    findings = []
    for call in calls:
        where = {"layer": call.layer, "rank": str(call.rank)}
        findings.append(_bias(check, call, biases.get(call.layer), where))
        if call.logits:
            with np.errstate(all="ignore"):  # logits may be no numbers: that is for the finding to say
                findings.append(_weights(check, call, dimensions, installation, where))
    return findings or [nothing(check, "no router was watched")]


def _bias(check: str, call: RouterCall, stored: Sequence[float] | None, where: Mapping[str, str]) -> Finding:
    if stored is None:
        return nothing(check, f"the file's exp_probs_b of {call.layer} is not known")
    expected = np.asarray(stored, np.float32)
    equal = np.array_equal(np.asarray(call.bias, np.float32), expected)
    distinct, wanted = len(set(call.bias)), len(set(expected.tolist()))
    return judged(
        check,
        equal and call.bias_dtype == "float32",
        got=f"a bias in {call.bias_dtype} with {distinct} distinct values" + ("" if equal else ", not the file's"),
        want=f"the file's exp_probs_b in float32, {wanted} distinct values",
        where=where,
        cause="the bias is held in a narrower type: neighbours collapse and other experts are chosen"
        if distinct < wanted or call.bias_dtype != "float32"
        else "the bias was not loaded, or from another layer",
    )


def _weights(
    check: str, call: RouterCall, dimensions: Dimensions, installation: Installation, where: Mapping[str, str]
) -> Finding:
    got = _dense(call, np.asarray(call.weights, np.float64) * call.output_scale)
    expected = route(call, dimensions)
    bound = tolerances.ROUTER_WEIGHT_REDUCED if installation.reduced else tolerances.ROUTER_WEIGHT_FLOAT32
    wrong = [t for t in range(len(got)) if not np.abs(got[t] - expected[t]).max() <= bound * dimensions.routed_scale]
    share = len(wrong) / len(got)
    at = wrong[0] if wrong else 0
    right = share <= (tolerances.ROUTER_TIES if installation.reduced else 0.0)
    return judged(
        check,
        right,
        got=f"{len(wrong)} of {len(got)} tokens weighted otherwise; token {at}: "
        f"sum {got[at].sum():.4f}, experts {_used(got[at])}",
        want=f"sum {expected[at].sum():.4f}, experts {_used(expected[at])}",
        where=where,
        cause="" if right else _variant(got, call, dimensions),
        value=share,
    )


def route(call: RouterCall, dimensions: Dimensions, **variant: bool) -> _Floats:
    """Weights [tokens, experts] that GLM-5's router gives to `call`'s logits, zero for experts that are not used.

    `variant` switches on what implementations have got wrong: `softmax` gating, bias `in_weights`, no routed scale
    (`unscaled`), or the scale applied `twice`. With expert groups (none in GLM-5) only the best groups take part.
    """
    logits, bias = np.asarray(call.logits, np.float64), np.asarray(call.bias, np.float64)
    scores: _Floats
    if variant.get("softmax"):
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    else:
        scores = expit(logits)
    biased = _within_groups(scores + bias, dimensions)
    used = np.argsort(-biased, axis=1, kind="stable")[:, : dimensions.experts_used]
    chosen = np.take_along_axis(scores + bias if variant.get("in_weights") else scores, used, axis=1)
    if dimensions.norm_topk:
        chosen = chosen / chosen.sum(axis=1, keepdims=True)
    chosen *= 1.0 if variant.get("unscaled") else dimensions.routed_scale ** (2 if variant.get("twice") else 1)
    weights = np.zeros_like(scores)
    np.put_along_axis(weights, used, chosen, axis=1)
    return weights


def _within_groups(biased: _Floats, dimensions: Dimensions) -> _Floats:
    """Scores of experts outside the best groups, by the sum of a group's two best, become minus infinity."""
    if dimensions.groups <= 1:
        return biased
    grouped = biased.reshape(len(biased), dimensions.groups, -1)
    worth = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-worth, axis=1)[:, : dimensions.groups_used]
    keep = np.zeros_like(worth, dtype=bool)
    np.put_along_axis(keep, best, True, axis=1)
    kept: _Floats = np.where(keep[:, :, None], grouped, -np.inf).reshape(biased.shape)
    return kept


def _dense(call: RouterCall, weights: _Floats) -> _Floats:
    dense = np.zeros((len(call.logits), len(call.logits[0])))
    np.put_along_axis(dense, np.asarray(call.expert_ids), weights, axis=1)
    return dense


def _used(row: _Floats) -> str:
    return ",".join(str(expert) for expert in np.flatnonzero(row != 0))


def _variant(got: _Floats, call: RouterCall, dimensions: Dimensions) -> str:
    """Which known mistake explains the weights."""
    if not np.isfinite(got).all():
        return "the router divides 0 by 0: scores recovered as (score + bias) - bias vanish beside a large bias"
    known = {
        "softmax instead of sigmoid gating (scoring_func missing in the config?)": {"softmax": True},
        "the bias is kept in the weights; it may only choose": {"in_weights": True},
        "the routed scale is not applied": {"unscaled": True},
        "the routed scale is applied twice": {"twice": True},
    }
    for what, variant in known.items():
        if np.allclose(got, route(call, dimensions, **variant), atol=tolerances.ROUTER_WEIGHT_REDUCED):
            return what
    expected = route(call, dimensions)
    ratio = float(np.median(got.sum(axis=1) / expected.sum(axis=1)))
    if abs(ratio - 1) > 0.01:
        return f"the weights sum to {ratio:.2f} times what they should"
    return "the same experts, weighted otherwise" if ((got != 0) == (expected != 0)).all() else "other experts chosen"
