"""The ops that multiply by weights: embedding, linear, head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fucina.errors import ShapeError
from fucina.ops.reference.matrix import Matrix
from fucina.ops.reference.rowwise import activate, rms_norm
from fucina.ops.reference.slab import ReferenceSlab, Row
from fucina.ops.seam import Activation, RmsNorm


@dataclass(frozen=True, slots=True)
class EmbedOp:
    """out[r] = table[token of row r] * scale."""

    name: str
    table: Matrix
    out: ReferenceSlab
    scale: float

    def run(self, rows: Sequence[Row]) -> None:
        """Look up only the rows needed. Raises ShapeError for a token without a row."""
        vocab = self.table.weight.shape[0]
        if not all(0 <= row.token < vocab for row in rows):
            raise ShapeError("tokens of a pass", expected=f"0 to {vocab - 1}", got=[row.token for row in rows])
        found = self.table.rows([row.token for row in rows])
        self.out.array(len(rows))[:] = found * np.float32(self.scale)


@dataclass(frozen=True, slots=True)
class BoundProjection:
    """One product of a LinearOp; bias (d_out,) f32."""

    matrix: Matrix
    out: ReferenceSlab
    bias: NDArray[np.float32] | None
    accumulate: bool


@dataclass(frozen=True, slots=True)
class LinearOp:
    """Products of one input: x, norm(x), or activation(x) * up."""

    name: str
    x: ReferenceSlab
    projections: tuple[BoundProjection, ...]
    norm: RmsNorm | None
    up: ReferenceSlab | None
    activation: Activation | None

    def run(self, rows: Sequence[Row]) -> None:
        """Make the input once, then every product of it."""
        inputs = np.stack([self._input(r) for r in range(len(rows))])
        for projection in self.projections:
            y = projection.matrix.products(inputs)
            if projection.bias is not None:
                y += projection.bias
            out = projection.out.array(len(rows))
            if projection.accumulate:
                out += y
            else:
                out[:] = y

    def _input(self, r: int) -> NDArray[np.float32]:
        x = self.x.row(r)
        if self.norm is not None:
            return rms_norm(x, self.norm)
        if self.up is not None and self.activation is not None:
            return activate(x, self.activation) * self.up.row(r)
        return x


@dataclass(frozen=True, slots=True)
class HeadOp:
    """Logits of the rows that want them."""

    name: str
    x: ReferenceSlab
    norm: RmsNorm
    matrix: Matrix
    out: ReferenceSlab

    def run(self, rows: Sequence[Row]) -> None:
        """Normalize the wanted rows and multiply; nothing happens when none is wanted."""
        wanted = [r for r, row in enumerate(rows) if row.wanted]
        if wanted:
            inputs = np.stack([rms_norm(self.x.row(r), self.norm) for r in wanted])
            self.out.array(len(wanted))[:] = self.matrix.products(inputs)
