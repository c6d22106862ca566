"""Packed weights back to float32: the meaning of every format, in NumPy.

Source: the block layouts of ggml's formats (docs/reference/gguf-support.md draws them). Scales are IEEE half floats,
every product and sum is rounded to float32 in the order written here, so results are defined to the bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fucina.core import formats
from fucina.core.formats import Format
from fucina.errors import ShapeError, UnsupportedFormat

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_IQ4 = np.array(formats.IQ4_CODES, np.float32)
_E2M1 = np.array(formats.E2M1_DOUBLED, np.float32)


def dequantize(data: Bytes, fmt: Format) -> Floats:
    """All weights of `data`, flat and in order: (n_bytes,) uint8 to (n_weights,) f32; the result is new memory.

    Rows follow each other without gaps: a matrix is `dequantize(data, fmt).reshape(d_out, d_in)`, and any run of whole
    rows can be taken alone. Raises ShapeError for bytes that are not whole blocks, UnsupportedFormat.
    """
    if fmt.type_id not in _UNPACK:
        raise UnsupportedFormat(f"{fmt.name} does not run here; formats that run: {formats.supported_names()}")
    if data.ndim != 1 or len(data) % fmt.block_bytes:
        raise ShapeError(f"{fmt.name} bytes", expected=f"(a multiple of {fmt.block_bytes},)", got=data.shape)
    blocks = np.ascontiguousarray(data).reshape(-1, fmt.block_bytes)
    # a file may hold infinite or NaN scales: they give infinite or NaN weights, quietly
    with np.errstate(invalid="ignore", over="ignore"):
        return _UNPACK[fmt.type_id](blocks).reshape(-1)


def _f32(blocks: Bytes) -> Floats:
    return blocks.view("<f4").astype(np.float32)


def _f16(blocks: Bytes) -> Floats:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 2:]).astype(np.int8) - np.int8(8)
    return _half(blocks, 0) * quants.astype(np.float32)


def _q4_1(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).astype(np.float32) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    quants = (_nibbles(blocks[:, 6:]) | _bits(blocks[:, 2:6]) << 4).astype(np.int8) - np.int8(16)
    return _half(blocks, 0) * quants.astype(np.float32)


def _q5_1(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 8:]) | _bits(blocks[:, 4:8]) << 4
    return _half(blocks, 0) * quants.astype(np.float32) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _q2_k(blocks: Bytes) -> Floats:
    quants = _pairs(blocks[:, 16:80]).reshape(-1, 16, 16)
    scales, minima = blocks[:, :16] & np.uint8(15), blocks[:, :16] >> np.uint8(4)
    return _with_minima(_half(blocks, 80), _half(blocks, 82), scales, minima, quants)


def _q3_k(blocks: Bytes) -> Floats:
    low, high = _pairs(blocks[:, 32:96]), _planes(blocks[:, :32])
    quants = (low | high << 2).astype(np.int8) - np.int8(4)
    scales = _half(blocks, 108) * _signed_scales(_unpack_q3_scales(blocks[:, 96:108]))
    return scales[:, :, None] * quants.reshape(-1, 16, 16).astype(np.float32)


def _q4_k(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 16:].reshape(-1, 4, 32))
    return _with_minima(_half(blocks, 0), _half(blocks, 2), *unpack_scales(blocks[:, 4:16]), quants.reshape(-1, 8, 32))


def _q5_k(blocks: Bytes) -> Floats:
    low = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    quants = low | _planes(blocks[:, 16:48]) << np.uint8(4)
    return _with_minima(_half(blocks, 0), _half(blocks, 2), *unpack_scales(blocks[:, 4:16]), quants)


def _q6_k(blocks: Bytes) -> Floats:
    # each half of 128 weights: 64 bytes of low nibbles, 32 bytes of two high bits
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 8, 32)
    quants = (low | _pairs(blocks[:, 128:192]) << 4).astype(np.int8) - np.int8(32)
    scales = _half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return scales[:, :, None] * quants.reshape(-1, 16, 16).astype(np.float32)


def _iq4_nl(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _IQ4[_nibbles(blocks[:, 2:])]


def _iq4_xs(blocks: Bytes) -> Floats:
    # two high bits of all eight scales in a 16-bit number, then their low nibbles, two to a byte
    high = np.ascontiguousarray(blocks[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16)
    low = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    scales = _half(blocks, 0) * _signed_scales(low | (high.astype(np.uint8) & 3) << 4)
    return scales[:, :, None] * _IQ4[_nibbles(blocks[:, 8:].reshape(-1, 8, 16))]


def _mxfp4(blocks: Bytes) -> Floats:
    # 2^(e - 128): half of what the exponent says, since the table is doubled
    scales = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    return scales * _E2M1[_nibbles(blocks[:, 1:])]


def _with_minima(d: Floats, dmin: Floats, scales: Bytes, minima: Bytes, quants: Bytes) -> Floats:
    """(d * scale) * q - dmin * minimum; d, dmin (n, 1), scales and minima (n, sub), quants (n, sub, weights)."""
    d, m = d * scales.astype(np.float32), dmin * minima.astype(np.float32)
    return d[:, :, None] * quants.astype(np.float32) - m[:, :, None]


def _unpack_q3_scales(packed: Bytes) -> Bytes:
    """The sixteen 6-bit scales of Q3_K blocks: (n, 12) to (n, 16)."""
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(4, 1)
    high = (packed[:, None, 8:] >> shifts & np.uint8(3)).reshape(-1, 16)
    return _nibbles(packed[:, :8]) | high << np.uint8(4)


def _signed_scales(scales: Bytes) -> Floats:
    """6-bit scales that are stored 32 too large."""
    return (scales.astype(np.int8) - np.int8(32)).astype(np.float32)


def unpack_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The eight 6-bit scales and eight 6-bit minima of Q4_K and Q5_K blocks: (n, 12) to twice (n, 8)."""
    first, second, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (rest & 15) | (first >> 6) << 4], axis=1)
    minima = np.concatenate([second & 63, (rest >> 4) | (second >> 6) << 4], axis=1)
    return scales, minima


def _half(blocks: Bytes, offset: int) -> Floats:
    """The half float at `offset` of every block, (n_blocks, 1) f32."""
    return np.ascontiguousarray(blocks[:, offset : offset + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """All low nibbles of the last axis, then all high ones: (..., n) to (..., 2n)."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _pairs(packed: Bytes) -> Bytes:
    """Two bits a weight: (n, 64) to (n, 8, 32); bits 2j of the first 32 bytes give row j, the others row 4 + j."""
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)
    return (packed.reshape(-1, 2, 1, 32) >> shifts & np.uint8(3)).reshape(-1, 8, 32)


def _planes(packed: Bytes) -> Bytes:
    """One bit a weight: (n, 32) to (n, 8, 32); bit j of every byte gives row j."""
    return packed[:, None, :] >> np.arange(8, dtype=np.uint8).reshape(8, 1) & np.uint8(1)


def _bits(packed: Bytes) -> Bytes:
    """Bits of the last axis, lowest first: (n, 4) to (n, 32)."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


_UNPACK: dict[int, Callable[[Bytes], Floats]] = {
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
