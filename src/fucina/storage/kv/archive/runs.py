"""A run: consecutive positions of one block, cut out of it and put back. A whole block is a run as it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fucina.core.shapes import KV_BLOCK
from fucina.storage.kv.geometry import KvGeometry


class _Piece(NamedTuple):
    """Bytes of a block whose axis of 64 positions is `axis` of (n, 64, m) bytes; n and m say all that is around it."""

    offset: int
    n: int
    m: int


def runs_of(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Split positions start .. end - 1 at the ends of blocks."""
    while start < end:
        stop = min(end, (start // KV_BLOCK + 1) * KV_BLOCK)
        yield start, stop
        start = stop


def run_bytes(geometry: KvGeometry, n_positions: int) -> int:
    """Bytes of a run of so many positions."""
    return geometry.block_bytes // KV_BLOCK * n_positions


class Cutter:
    """Cuts runs out of the blocks of one geometry, (block_bytes,) uint8, and puts them back."""

    def __init__(self, geometry: KvGeometry) -> None:
        self._geometry = geometry
        self._pieces = list(_pieces(geometry))

    def cut(self, block: NDArray[np.uint8], start: int, end: int) -> NDArray[np.uint8]:
        """Positions start .. end - 1 of a block: it with every axis of 64 positions cut to these. Borrowed if whole."""
        if end - start == KV_BLOCK:
            return block
        return np.concatenate([_positions(block, piece)[:, start:end].ravel() for piece in self._pieces])

    def put(self, run: NDArray[np.uint8], block: NDArray[np.uint8], start: int, end: int) -> None:
        """Undo `cut`: write a run back to where it came from."""
        if end - start == KV_BLOCK:
            block[:] = run
            return
        offset = 0
        for piece in self._pieces:
            size = piece.n * (end - start) * piece.m
            part = run[offset : offset + size].reshape(piece.n, end - start, piece.m)
            _positions(block, piece)[:, start:end] = part
            offset += size


def _positions(block: NDArray[np.uint8], piece: _Piece) -> NDArray[np.uint8]:
    size = piece.n * KV_BLOCK * piece.m
    return block[piece.offset : piece.offset + size].reshape(piece.n, KV_BLOCK, piece.m)


def _pieces(geometry: KvGeometry) -> Iterator[_Piece]:
    """The pieces of a block in order, as KvGeometry lays them out."""
    width = {"f16": 2, "f32": 4, "q8_0": 1}[geometry.format]
    for index, layer in enumerate(geometry.layers):
        offset, n_scales = geometry.layer_offset(index), layer.d_head // 32
        for is_key in (True, False):
            if geometry.format != "q8_0":  # heads of the same shape, one behind the other
                n, m = (layer.kv_heads * layer.d_head, width) if is_key else (layer.kv_heads, layer.d_head * width)
                yield _Piece(offset, n, m)
                offset += layer.kv_heads * geometry.head_bytes(layer.d_head)
                continue
            for _ in range(layer.kv_heads):
                yield _Piece(offset, *((layer.d_head, 1) if is_key else (1, layer.d_head)))
                yield _Piece(offset + KV_BLOCK * layer.d_head, *((n_scales, 4) if is_key else (1, n_scales * 4)))
                offset += geometry.head_bytes(layer.d_head)
