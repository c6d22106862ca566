"""Float32 weights to every format that runs: plain and valid, for models made in tests. Not tuned for quality."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fucina.core import formats
from fucina.core.formats import Format
from fucina.errors import ShapeError

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_LOW = np.uint8(15)
_IQ4 = np.array(formats.IQ4_CODES, np.float32)
_E2M1 = np.array(formats.E2M1_DOUBLED[:8], np.float32)


def quantize(weights: Floats, fmt: Format) -> Bytes:
    """The bytes of `weights` (..., d_in) f32 in `fmt`, (n_bytes,) uint8.

    Every weight is rounded to the nearest value its block can express, scales first. Raises ShapeError where d_in is
    not a whole number of blocks.
    """
    if not weights.ndim or weights.shape[-1] % fmt.block_weights:
        raise ShapeError(f"{fmt.name} weights", expected=f"(..., a multiple of {fmt.block_weights})", got=weights.shape)
    blocks = np.ascontiguousarray(weights, dtype=np.float32).reshape(-1, fmt.block_weights)
    return np.ascontiguousarray(_PACK[fmt.type_id](blocks)).reshape(-1)


def _f32(x: Floats) -> Bytes:
    return x.astype("<f4").view(np.uint8)


def _f16(x: Floats) -> Bytes:
    return x.astype("<f2").view(np.uint8)


def _bf16(x: Floats) -> Bytes:
    bits = x.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16  # to nearest, ties to even; weights are finite
    return rounded.astype("<u2").view(np.uint8)


def _q4_0(x: Floats) -> Bytes:
    d, quants = _symmetric(x, 8)
    return np.concatenate([_half_bytes(d), _pack_nibbles(quants)], axis=1)


def _q5_0(x: Floats) -> Bytes:
    d, quants = _symmetric(x, 16)
    return np.concatenate([_half_bytes(d), _high_bits(quants), _pack_nibbles(quants & _LOW)], axis=1)


def _q4_1(x: Floats) -> Bytes:
    d, m, quants = _with_minimum(x, 15)
    return np.concatenate([_half_bytes(d), _half_bytes(m), _pack_nibbles(quants)], axis=1)


def _q5_1(x: Floats) -> Bytes:
    d, m, quants = _with_minimum(x, 31)
    return np.concatenate([_half_bytes(d), _half_bytes(m), _high_bits(quants), _pack_nibbles(quants & _LOW)], axis=1)


def _q8_0(x: Floats) -> Bytes:
    d = _as_half(np.abs(x).max(axis=1, keepdims=True) / np.float32(127))
    return np.concatenate([_half_bytes(d), _rounded(x, d, -127, 127).view(np.uint8)], axis=1)


def _q2_k(x: Floats) -> Bytes:
    d, dmin, scales, minima, quants = _k_with_minima(x.reshape(-1, 16, 16), 15, 3)
    packed = _pack_pairs(quants.reshape(-1, 8, 32))
    return np.concatenate([scales | minima << 4, packed, _half_bytes(d), _half_bytes(dmin)], axis=1)


def _q3_k(x: Floats) -> Bytes:
    d, scales = _k_signed(x.reshape(-1, 16, 16), -4)
    steps = (d * scales)[:, :, None]
    quants = (_rounded(x.reshape(-1, 16, 16), steps, -4, 3) + np.int8(4)).astype(np.uint8).reshape(-1, 8, 32)
    return np.concatenate(
        [
            _pack_planes(quants >> np.uint8(2)),
            _pack_pairs(quants & np.uint8(3)),
            _pack_q3_scales(scales),
            _half_bytes(d),
        ],
        axis=1,
    )


def _q4_k(x: Floats) -> Bytes:
    head, quants = _k_head(x, 15)
    return np.concatenate([head, _pack_nibbles(quants.reshape(-1, 4, 64)).reshape(-1, 128)], axis=1)


def _q5_k(x: Floats) -> Bytes:
    head, quants = _k_head(x, 31)
    low = _pack_nibbles((quants & _LOW).reshape(-1, 4, 64)).reshape(-1, 128)
    return np.concatenate([head, _pack_planes(quants >> np.uint8(4)), low], axis=1)


def _q6_k(x: Floats) -> Bytes:
    sub = x.reshape(-1, 16, 16)
    wanted = np.abs(sub).max(axis=2) / np.float32(31)
    d = _as_half(wanted.max(axis=1, keepdims=True) / np.float32(127))
    scales = _rounded(wanted, d, 0, 127)
    quants = (_rounded(sub, (d * scales)[:, :, None], -32, 31) + np.int8(32)).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = _pack_nibbles((quants & _LOW).reshape(-1, 2, 128)).reshape(-1, 128)
    high = _pack_pairs(quants.reshape(-1, 8, 32) >> np.uint8(4))
    return np.concatenate([low, high, scales.view(np.uint8), _half_bytes(d)], axis=1)


def _iq4_nl(x: Floats) -> Bytes:
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
    d = _as_half(extreme / np.float32(_IQ4[0]))
    return np.concatenate([_half_bytes(d), _pack_nibbles(_nearest(_divided(x, d), _IQ4))], axis=1)


def _iq4_xs(x: Floats) -> Bytes:
    d, scales = _k_signed(x.reshape(-1, 8, 32), int(_IQ4[0]))
    packed = _pack_nibbles(_nearest(_divided(x.reshape(-1, 8, 32), (d * scales)[:, :, None]), _IQ4)).reshape(-1, 128)
    stored = (scales + np.int8(32)).astype(np.uint8)
    low = stored[:, ::2] & _LOW | stored[:, 1::2] << 4
    high = ((stored >> 4).astype(np.uint16) << np.arange(0, 16, 2, dtype=np.uint16)).sum(axis=1, keepdims=True)
    return np.concatenate([_half_bytes(d), high.astype("<u2").view(np.uint8), low, packed], axis=1)


def _mxfp4(x: Floats) -> Bytes:
    # the smallest exponent under which no weight lies beyond the last value of the table
    _, exponent = np.frexp(np.abs(x).max(axis=1, keepdims=True) / np.float32(_E2M1[-1]))
    exponent = np.clip(exponent + 128, 0, 254)
    scaled = np.ldexp(x, 128 - exponent)
    codes = _nearest(np.abs(scaled), _E2M1) | np.signbit(scaled).astype(np.uint8) << 3
    return np.concatenate([exponent.astype(np.uint8), _pack_nibbles(codes)], axis=1)


def _symmetric(x: Floats, half_range: int) -> tuple[Floats, Bytes]:
    """Scales (n, 1) and quants 0..2 * half_range - 1: the value of largest magnitude sits at the lower end."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
    d = _as_half(extreme / np.float32(-half_range))
    quants = _rounded(x, d, -half_range, half_range - 1)
    return d, (quants + np.int8(half_range)).astype(np.uint8)


def _with_minimum(x: Floats, most: int) -> tuple[Floats, Floats, Bytes]:
    """Scales (n, 1), minima (n, 1) and quants 0..most."""
    m = _as_half(x.min(axis=1, keepdims=True))
    d = _as_half((x.max(axis=1, keepdims=True) - m) / np.float32(most))
    return d, m, _rounded(x - m, d, 0, most).astype(np.uint8)


def _k_head(x: Floats, most: int) -> tuple[Bytes, Bytes]:
    """The first 16 bytes of Q4_K and Q5_K blocks, and their quants (n, 8, 32) of 0..most."""
    d, dmin, scales, minima, quants = _k_with_minima(x.reshape(-1, 8, 32), 63, most)
    return np.concatenate([_half_bytes(d), _half_bytes(dmin), _pack_scales(scales, minima)], axis=1), quants


def _k_with_minima(sub: Floats, top: int, most: int) -> tuple[Floats, Floats, Bytes, Bytes, Bytes]:
    """d and dmin (n, 1), scales and minima 0..top (n, sub-blocks), quants 0..most, shaped as `sub`."""
    wanted_m = np.maximum(-sub.min(axis=2), 0)
    wanted_d = (np.maximum(sub.max(axis=2), 0) + wanted_m) / np.float32(most)
    d, dmin = (_as_half(wanted.max(axis=1, keepdims=True) / np.float32(top)) for wanted in (wanted_d, wanted_m))
    scales, minima = _rounded(wanted_d, d, 0, top).astype(np.uint8), _rounded(wanted_m, dmin, 0, top).astype(np.uint8)
    quants = _rounded(sub + (dmin * minima)[:, :, None], (d * scales)[:, :, None], 0, most).astype(np.uint8)
    return d, dmin, scales, minima, quants


def _k_signed(sub: Floats, end: int) -> tuple[Floats, NDArray[np.int8]]:
    """d (n, 1) and scales -32..31 (n, sub-blocks): each sub-block's value of largest magnitude sits at quant `end`."""
    extreme = np.take_along_axis(sub, np.abs(sub).argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
    wanted = extreme / np.float32(end)
    d = _as_half(np.abs(wanted).max(axis=1, keepdims=True) / np.float32(31))
    return d, _rounded(wanted, d, -32, 31)


def _pack_q3_scales(scales: NDArray[np.int8]) -> Bytes:
    """Sixteen scales of 6 bits, stored 32 too large, in 12 bytes."""
    stored = (scales + np.int8(32)).astype(np.uint8)
    high = (stored >> 4).reshape(-1, 4, 4)
    high = high[:, 0] | high[:, 1] << 2 | high[:, 2] << 4 | high[:, 3] << 6
    return np.concatenate([_pack_nibbles(stored & _LOW), high], axis=1)


def _pack_scales(scales: Bytes, minima: Bytes) -> Bytes:
    """Eight 6-bit scales and eight 6-bit minima in 12 bytes."""
    first = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    second = minima[:, :4] | (minima[:, 4:] >> 4) << 6
    return np.concatenate([first, second, (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4], axis=1)


def _rounded(x: Floats, d: Floats, least: int, most: int) -> NDArray[np.int8]:
    """x / d to the nearest integer in least..most; 0 (or least) where d is 0."""
    return np.clip(np.rint(_divided(x, d)), least, most).astype(np.int8)


def _divided(x: Floats, d: Floats) -> Floats:
    """x / d, and 0 where d is 0."""
    return x * np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)


def _nearest(x: Floats, table: Floats) -> Bytes:
    """The index of the value of the ascending `table` that is nearest to each x."""
    return np.searchsorted((table[1:] + table[:-1]) / 2, x).astype(np.uint8)


def _as_half(x: Floats) -> Floats:
    """What is left of `x` after storing it as a half float: quants are chosen for the stored scale."""
    return x.astype(np.float16).astype(np.float32)


def _half_bytes(x: Floats) -> Bytes:
    return x.astype("<f2").view(np.uint8)


def _pack_nibbles(quants: Bytes) -> Bytes:
    """The first half of the last axis in the low nibbles, the second in the high ones."""
    half = quants.shape[-1] // 2
    packed: Bytes = quants[..., :half] | quants[..., half:] << np.uint8(4)
    return packed


def _pack_pairs(quants: Bytes) -> Bytes:
    """Two bits of each: (n, 8, 32) to (n, 64); rows 0 to 3 share the first 32 bytes, row j in bits 2j."""
    four = quants.reshape(-1, 2, 4, 32)
    packed: Bytes = (
        four[:, :, 0] | four[:, :, 1] << np.uint8(2) | four[:, :, 2] << np.uint8(4) | four[:, :, 3] << np.uint8(6)
    )
    return packed.reshape(-1, 64)


def _pack_planes(bits: Bytes) -> Bytes:
    """One bit of each: (n, 8, 32) to (n, 32); row j in bit j."""
    return np.packbits(bits, axis=1, bitorder="little").reshape(-1, 32)


def _high_bits(quants: Bytes) -> Bytes:
    """Bit 4 of 32 quants as four bytes."""
    return np.packbits(quants >> 4, axis=1, bitorder="little")


_PACK: dict[int, Callable[[Floats], Bytes]] = {
    formats.F32.type_id: _f32,
    formats.F16.type_id: _f16,
    formats.BF16.type_id: _bf16,
    formats.Q4_0.type_id: _q4_0,
    formats.Q4_1.type_id: _q4_1,
    formats.Q5_0.type_id: _q5_0,
    formats.Q5_1.type_id: _q5_1,
    formats.Q8_0.type_id: _q8_0,
    formats.Q2_K.type_id: _q2_k,
    formats.Q3_K.type_id: _q3_k,
    formats.Q4_K.type_id: _q4_k,
    formats.Q5_K.type_id: _q5_k,
    formats.Q6_K.type_id: _q6_k,
    formats.IQ4_NL.type_id: _iq4_nl,
    formats.IQ4_XS.type_id: _iq4_xs,
    formats.MXFP4.type_id: _mxfp4,
}
