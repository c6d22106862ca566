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

#: Blocks that are combined before their sum joins that of earlier positions: stretches of 256 positions.
STRETCH_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class SoftmaxSum:
    """A softmax that is not finished: the largest score, the sum of exponentials and of weighted values below it.

    top and total (kv_heads, group, 1), out (kv_heads, group, d_head), all f64.
    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """

    top: NDArray[np.float64]
    total: NDArray[np.float64]
    out: NDArray[np.float64]

    @classmethod
    def empty(cls, queries: NDArray[np.float64]) -> SoftmaxSum:
        """The sum over no position, for queries (kv_heads, group, d_head)."""
        zeros = np.zeros((*queries.shape[:2], 1))
        return cls(zeros - np.inf, zeros, np.zeros_like(queries))

    @classmethod
    def of(cls, scores: NDArray[np.float64], values: NDArray[np.float64]) -> SoftmaxSum:
        """Over the positions of one block; scores (kv_heads, group, n), values (kv_heads, n, d_head)."""
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - top)
        return cls(top, weights.sum(axis=-1, keepdims=True), weights @ values)

    def plus(self, later: SoftmaxSum) -> SoftmaxSum:
        """Both, relative to the larger of their maxima; a later sum over no position changes nothing."""
        if np.isneginf(later.top).all():
            return self
        top = np.maximum(self.top, later.top)
        mine, theirs = np.exp(self.top - top), np.exp(later.top - top)
        return SoftmaxSum(top, self.total * mine + later.total * theirs, self.out * mine + later.out * theirs)


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
        """Softmax over what the row sees, (kv_heads, group, d_head) f64: blocks into stretches, stretches into one."""
        spec = self.spec
        first = 0 if spec.window is None else max(0, row.position - spec.window + 1)
        queries = q.astype(np.float64).reshape(spec.kv_heads, -1, spec.d_head) * spec.scale
        result = stretch = SoftmaxSum.empty(queries)
        for index in range(first // KV_BLOCK, row.position // KV_BLOCK + 1):
            if index % STRETCH_BLOCKS == 0:
                result, stretch = result.plus(stretch), SoftmaxSum.empty(queries)
            start = max(first - index * KV_BLOCK, 0)
            stop = min(row.position + 1 - index * KV_BLOCK, KV_BLOCK)
            keys = self.cache.keys(row.blocks[index], start, stop).astype(np.float64)
            values = self.cache.values(row.blocks[index], start, stop).astype(np.float64)
            stretch = stretch.plus(SoftmaxSum.of(queries @ keys, values))
        result = result.plus(stretch)
        return result.out / result.total
