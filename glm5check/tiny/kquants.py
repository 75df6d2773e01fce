"""Our own K-quantisers (Q4_K, Q5_K, Q6_K) in numpy, and one `quantize` for every type that the tiny model uses.

Layouts are those that `gguf.quants.dequantize` reads back. A super-block is 256 weights of one row.

    Q4_K  f16 d | f16 dmin | 12 bytes: 8 x (6-bit scale, 6-bit min) | 128 bytes: 256 x 4 bits
    Q5_K  f16 d | f16 dmin | 12 bytes: as Q4_K | 32 bytes: fifth bits | 128 bytes: lower 4 bits
    Q6_K  128 bytes: lower 4 bits | 64 bytes: upper 2 bits | 16 x int8 scale | f16 d

Q4_K and Q5_K: w = d * scale * q - dmin * min, 8 sub-blocks of 32. Q6_K: w = d * scale * (q - 32), 16 sub-blocks of 16.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from gguf import GGMLQuantizationType
from gguf import quants as gguf_quants
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Bytes: TypeAlias = NDArray[np.uint8]

SUPER_BLOCK: Final = 256
SCALE_MAX: Final = 63
"""Largest 6-bit scale or min of Q4_K and Q5_K."""
# Stretching the range a little past min..max often rounds better; these steps get within 5 % of an exhaustive fit.
STRETCH: Final = np.linspace(-1.0, 1.0, 11, dtype=np.float32)


def quantize(weights: Floats, kind: GGMLQuantizationType) -> NDArray[np.generic]:
    """Weights [..., columns], float32, as GGUF bytes [..., bytes per row] (F32: unchanged).

    Raises ValueError where `columns` is not whole blocks of `kind`, or where `kind` has no quantiser here.
    """
    if kind is GGMLQuantizationType.F32:
        return np.ascontiguousarray(weights, dtype=np.float32)
    if kind is GGMLQuantizationType.Q8_0:
        return np.asarray(gguf_quants.quantize(np.ascontiguousarray(weights), kind))
    encoders = {
        GGMLQuantizationType.Q4_K: lambda blocks: _quantize_affine(blocks, bits=4),
        GGMLQuantizationType.Q5_K: lambda blocks: _quantize_affine(blocks, bits=5),
        GGMLQuantizationType.Q6_K: _quantize_symmetric,
    }
    if kind not in encoders:
        raise ValueError(f"no quantiser for {kind.name}: use one of F32, Q8_0, {', '.join(k.name for k in encoders)}")
    if weights.shape[-1] % SUPER_BLOCK:
        raise ValueError(f"{weights.shape[-1]} columns are not whole super-blocks of {SUPER_BLOCK}")
    blocks = np.ascontiguousarray(weights, dtype=np.float32).reshape(-1, SUPER_BLOCK)
    return encoders[kind](blocks).reshape(*weights.shape[:-1], -1)


def _quantize_affine(blocks: Floats, *, bits: int) -> Bytes:
    """Q4_K or Q5_K super-blocks, [n, 256] -> [n, 144 or 176]."""
    subs = blocks.reshape(-1, 8, 32)
    scale, minimum = _fit_affine(subs, levels=2**bits - 1)
    d, scale_q = _six_bits(scale)
    dmin, minimum_q = _six_bits(minimum)
    step = d[:, None] * scale_q
    offset = dmin[:, None] * minimum_q
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step > 0)
    q = np.rint((subs + offset[..., None]) * inverse[..., None]).clip(0, 2**bits - 1).astype(np.uint8)
    nibbles = (q & 15).reshape(-1, 4, 2, 32)
    low = (nibbles[:, :, 0] | nibbles[:, :, 1] << 4).reshape(-1, 128)
    head = [_half(d), _half(dmin), _pack_scales(scale_q.astype(np.uint8), minimum_q.astype(np.uint8))]
    if bits == 4:
        return np.concatenate([*head, low], axis=1)
    high = np.bitwise_or.reduce((q >> 4) << np.arange(8, dtype=np.uint8)[:, None], axis=1)
    return np.concatenate([*head, high, low], axis=1)


def _fit_affine(subs: Floats, *, levels: int) -> tuple[Floats, Floats]:
    """Per sub-block (scale >= 0, min >= 0) with w ~ scale * q - min: least squares for each of a few roundings."""
    low = np.minimum(subs.min(axis=-1), 0)
    span = np.maximum(subs.max(axis=-1) - low, np.float32(1e-12))
    best = np.full(low.shape, np.inf, dtype=np.float32)
    scale, minimum = span / levels, -low
    for stretch in STRETCH:
        q = np.rint((subs - low[..., None]) * ((levels + stretch) / span)[..., None]).clip(0, levels)
        mean_q, mean_w = q.mean(axis=-1), subs.mean(axis=-1)
        spread = np.maximum((q * q).mean(axis=-1) - mean_q**2, np.float32(1e-12))
        slope = ((q * subs).mean(axis=-1) - mean_q * mean_w) / spread
        shift = slope * mean_q - mean_w
        # The format has no negative min: where the fit wants one, go through zero instead.
        through_zero = (q * subs).sum(axis=-1) / np.maximum((q * q).sum(axis=-1), np.float32(1e-12))
        slope, shift = np.where(shift < 0, through_zero, slope), np.maximum(shift, 0)
        error = np.square(slope[..., None] * q - shift[..., None] - subs).sum(axis=-1)
        better = (error < best) & (slope > 0)
        best = np.where(better, error, best)
        scale, minimum = np.where(better, slope, scale), np.where(better, shift, minimum)
    return scale.astype(np.float32), minimum.astype(np.float32)


def _six_bits(values: Floats) -> tuple[Floats, Floats]:
    """[n, 8] non-negative values as (f16-exact factor [n], whole numbers 0..63 [n, 8])."""
    factor = (values.max(axis=-1) / SCALE_MAX).astype(np.float16).astype(np.float32)
    inverse = np.divide(1, factor, out=np.zeros_like(factor), where=factor > 0)
    return factor, np.rint(values * inverse[:, None]).clip(0, SCALE_MAX).astype(np.float32)


def _pack_scales(scale: Bytes, minimum: Bytes) -> Bytes:
    """Eight 6-bit scales and mins in 12 bytes: 4 scales, 4 mins, then the low nibbles of the other 4 of each.

    The upper two bits of the other four sit on top of the first eight bytes.
    """
    first = scale[:, :4] | (scale[:, 4:] >> 4) << 6
    second = minimum[:, :4] | (minimum[:, 4:] >> 4) << 6
    third = (scale[:, 4:] & 15) | (minimum[:, 4:] & 15) << 4
    return np.concatenate([first, second, third], axis=1)


def _quantize_symmetric(blocks: Floats) -> Bytes:
    """Q6_K super-blocks, [n, 256] -> [n, 210]."""
    subs = blocks.reshape(-1, 16, 16)
    scale = _fit_symmetric(subs)
    d = (np.abs(scale).max(axis=-1) / 127).astype(np.float16).astype(np.float32)
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d > 0)
    scale_q = np.rint(scale * inverse[:, None]).clip(-128, 127)
    step = d[:, None] * scale_q
    inverse_step = np.divide(1, step, out=np.zeros_like(step), where=step != 0)
    q = (np.rint(subs * inverse_step[..., None]).clip(-32, 31) + 32).astype(np.uint8)
    halves = (q & 15).reshape(-1, 2, 2, 64)
    low = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(-1, 128)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = np.bitwise_or.reduce((q >> 4).reshape(-1, 2, 4, 32) << shifts, axis=2).reshape(-1, 64)
    return np.concatenate([low, high, scale_q.astype(np.int8).view(np.uint8), _half(d)], axis=1)


def _fit_symmetric(subs: Floats) -> Floats:
    """Per sub-block a signed scale with w ~ scale * q, q in -32..31: least squares for each of a few roundings."""
    index = np.abs(subs).argmax(axis=-1)[..., None]
    extreme = np.take_along_axis(subs, index, axis=-1)[..., 0]
    safe = np.where(extreme == 0, 1, extreme)
    best = np.full(extreme.shape, np.inf, dtype=np.float32)
    scale = np.zeros_like(extreme)
    for stretch in STRETCH:
        # The largest magnitude maps to -32, which has no positive counterpart.
        q = np.rint(subs * ((-32 + stretch) / safe)[..., None]).clip(-32, 31)
        slope = (q * subs).sum(axis=-1) / np.maximum((q * q).sum(axis=-1), np.float32(1e-12))
        error = np.square(slope[..., None] * q - subs).sum(axis=-1)
        better = error < best
        best, scale = np.where(better, error, best), np.where(better, slope, scale)
    return scale.astype(np.float32)


def _half(values: Floats) -> Bytes:
    """[n] f16 numbers as bytes [n, 2]."""
    return values.astype(np.float16).reshape(-1, 1).view(np.uint8)
