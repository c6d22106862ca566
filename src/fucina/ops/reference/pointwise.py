"""The ops without weights to multiply by: rotation angles, and adding a normalized branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fucina.ops.reference.rowwise import rms_norm, rope_angles
from fucina.ops.reference.slab import ReferenceSlab, Row
from fucina.ops.seam import RmsNorm


@dataclass(frozen=True, slots=True)
class RopeAnglesOp:
    """out[r] = cosines and sines of row r's position; inv_freq (d_rotary / 2,) f64."""

    name: str
    inv_freq: NDArray[np.float64]
    magnitude: float
    out: ReferenceSlab

    def run(self, rows: Sequence[Row]) -> None:
        """In float64, rounded to float32."""
        for r, row in enumerate(rows):
            self.out.row(r)[:] = rope_angles(row.position, self.inv_freq, self.magnitude)


@dataclass(frozen=True, slots=True)
class AddNormOp:
    """x += norm(y)."""

    name: str
    x: ReferenceSlab
    y: ReferenceSlab
    norm: RmsNorm

    def run(self, rows: Sequence[Row]) -> None:
        """One row after the other."""
        for r in range(len(rows)):
            self.x.row(r)[:] += rms_norm(self.y.row(r), self.norm)
