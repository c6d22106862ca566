"""Scans over a row of logits in NumPy: what native/src/pick does, to the same bits; for where no extension is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fucina.decoding.exact_math import EXP_FLOOR, exp

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Strided lanes of every sum over a row. Part of the result's definition.
LANES = 16


class ReferenceScans:
    """The scans of `RowScans` in NumPy."""

    def argmax(self, row: NDArray[np.float32]) -> int:
        """See RowScans."""
        best = int(np.argmax(row))  # NaN wins in NumPy's order, so it cannot hide behind a greater logit
        return best if row[best] < np.inf else -1

    def top_k(
        self, row: NDArray[np.float32], k: int, allowed: NDArray[np.uint32] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        """See RowScans."""
        row = self._masked(row, allowed)
        if self.argmax(row) < 0:
            return None
        ids = np.argsort(-row, kind="stable")[: min(k, len(row))]
        ids = ids[row[ids] > -np.inf]
        return ids.astype(np.int32), row[ids]

    def exp_sum(
        self,
        row: NDArray[np.float32],
        best: float,
        inverse_temperature: float,
        allowed: NDArray[np.uint32] | None = None,
    ) -> float:
        """See RowScans."""
        row = self._masked(row, allowed)
        padded = np.full(-(-len(row) // LANES) * LANES, -np.inf, np.float32)
        padded[: len(row)] = row
        with np.errstate(over="ignore"):
            weights = exp((padded.astype(np.float64) - best) * inverse_temperature).reshape(-1, LANES)
        # accumulate, unlike sum, promises its order
        lanes = np.add.accumulate(weights, axis=0)[-1]
        return float(np.add.accumulate(lanes)[-1])

    def draw(
        self,
        values: NDArray[np.float32],
        inverse_temperature: float,
        total: float,
        top_p: float,
        min_p: float,
        uniform: float,
        complete: bool,
    ) -> int:
        """See RowScans."""
        wide = values.astype(np.float64)
        with np.errstate(over="ignore"):
            x = (wide - wide[0]) * inverse_temperature
        weights = np.where(x < EXP_FLOOR, 0.0, exp(x))
        cumulative = np.add.accumulate(weights)
        if total < 0.0:
            total = float(cumulative[-1])
        cut = (weights == 0.0) | (weights < min_p)
        cut[0] = False
        kept = int(np.argmax(cut)) if cut.any() else len(weights)
        ended = complete or kept < len(weights)
        if top_p < 1.0:
            reached = np.flatnonzero(cumulative[:kept] >= top_p * total)
            if len(reached):
                kept, ended = int(reached[0]) + 1, True
        if not ended and (top_p < 1.0 or min_p > 0.0):
            return -1
        point = uniform * (float(cumulative[kept - 1]) if ended else total)
        drawn = int(np.searchsorted(cumulative[:kept], point, side="right"))
        if drawn < kept:
            return drawn
        return kept - 1 if ended else -1

    def penalize(
        self, row: NDArray[np.float32], window: Sequence[int], repeat: float, frequency: float, presence: float
    ) -> None:
        """See RowScans."""
        for token, occurrences in Counter(window).items():
            if 0 <= token < len(row):
                logit = float(row[token])
                scaled = logit / repeat if logit > 0.0 else logit * repeat
                row[token] = np.float32(scaled - (occurrences * frequency + presence))

    def apply_bitmask(self, row: NDArray[np.float32], words: NDArray[np.uint32]) -> None:
        """See RowScans."""
        bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")[: len(row)]
        row[: len(bits)][bits == 0] = -np.inf
        row[len(bits) :] = -np.inf

    def _masked(self, row: NDArray[np.float32], allowed: NDArray[np.uint32] | None) -> NDArray[np.float32]:
        if allowed is None:
            return row
        masked = row.copy()
        self.apply_bitmask(masked, allowed)
        return masked
