"""Causal attention over the blocks of a KV pool, one row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fucina.core.shapes import KV_BLOCK
from fucina.ops.reference.cache import LayerCache
from fucina.ops.reference.rowwise import rms_norm, rotate
from fucina.ops.reference.slab import ReferenceSlab, Row
from fucina.ops.seam import AttentionSpec, RmsNorm


@dataclass(frozen=True, slots=True)
class AttentionOp:
    """Normalize and rotate q and k, store k and v, attend. Rows of a sequence come in order, so each finds its past."""

    name: str
    spec: AttentionSpec
    cache: LayerCache
    q: ReferenceSlab
    k: ReferenceSlab
    v: ReferenceSlab
    angles: ReferenceSlab
    out: ReferenceSlab

    def run(self, rows: Sequence[Row]) -> None:
        """One row after the other."""
        for r, row in enumerate(rows):
            angles = self.angles.row(r)
            q = self._prepare(self.q.row(r), self.spec.q_norm, angles)
            k = self._prepare(self.k.row(r), self.spec.k_norm, angles)
            v = self.v.row(r).reshape(self.spec.kv_heads, self.spec.d_head)
            self.cache.write(row.blocks[row.position // KV_BLOCK], row.position % KV_BLOCK, k, v)
            self.out.row(r)[:] = self._attend(q, row).reshape(-1)

    def _prepare(
        self, x: NDArray[np.float32], norm: RmsNorm | None, angles: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Heads of one row, normalized and rotated, (heads, d_head) f32."""
        heads = x.reshape(-1, self.spec.d_head)
        if norm is not None:
            heads = np.stack([rms_norm(head, norm) for head in heads])
        return rotate(heads, angles, self.spec.rope_style)

    def _attend(self, q: NDArray[np.float32], row: Row) -> NDArray[np.float64]:
        """Softmax over what the row sees, block by block in ascending order; (kv_heads, group, d_head) f64.

        Each block gives its maximum, its sum of exponentials and its weighted values; the running triple is rescaled
        to the larger maximum. Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
        """
        spec = self.spec
        first = 0 if spec.window is None else max(0, row.position - spec.window + 1)
        queries = q.astype(np.float64).reshape(spec.kv_heads, -1, spec.d_head)
        top = np.full((*queries.shape[:2], 1), -np.inf)
        total = np.zeros_like(top)
        out = np.zeros_like(queries)
        for index in range(first // KV_BLOCK, row.position // KV_BLOCK + 1):
            start = max(first - index * KV_BLOCK, 0)
            stop = min(row.position + 1 - index * KV_BLOCK, KV_BLOCK)
            scores = queries @ self.cache.keys(row.blocks[index], start, stop).astype(np.float64) * spec.scale
            block_top = scores.max(axis=-1, keepdims=True)
            weights = np.exp(scores - block_top)
            new_top = np.maximum(top, block_top)
            keep, add = np.exp(top - new_top), np.exp(block_top - new_top)
            values = self.cache.values(row.blocks[index], start, stop).astype(np.float64)
            total = total * keep + weights.sum(axis=-1, keepdims=True) * add
            out = out * keep + weights @ values * add
            top = new_top
        return out / total
