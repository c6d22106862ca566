"""Buffers of activations, and the rows of a pass, as the reference backend sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fucina.errors import ShapeError
from fucina.ops.batch import Batch
from fucina.ops.seam import Slab


class ReferenceSlab:
    """(max_rows, width) f32; pages that no row has reached cost no memory."""

    def __init__(self, max_rows: int, width: int) -> None:
        if width < 1:
            raise ShapeError("slab width", expected="at least 1", got=width)
        self._values = np.zeros((max_rows, width), np.float32)

    @property
    def width(self) -> int:
        """Values per row."""
        return int(self._values.shape[1])

    def array(self, rows: int) -> NDArray[np.float32]:
        """The first `rows` rows, (rows, width) f32, as a view."""
        return self._values[:rows]

    def row(self, index: int) -> NDArray[np.float32]:
        """One row, (width,) f32, as a view."""
        row: NDArray[np.float32] = self._values[index]
        return row


def own(slab: Slab, what: str, width: int) -> ReferenceSlab:
    """The slab as this backend's own, of exactly that width. Raises ShapeError."""
    assert isinstance(slab, ReferenceSlab), "a slab of another backend"
    if slab.width != width:
        raise ShapeError(what, expected=f"a slab of width {width}", got=f"width {slab.width}")
    return slab


@dataclass(frozen=True, slots=True)
class Row:
    """One token of a pass: where it stands, which blocks its sequence owns, whether its logits are wanted."""

    token: int
    position: int
    blocks: Sequence[int]
    wanted: bool


def rows_of(batch: Batch) -> list[Row]:
    """Every row of a batch, spans one after the other."""
    rows = []
    for span in batch.spans:
        first_wanted = len(span.tokens) - span.n_logits
        for index, token in enumerate(span.tokens):
            rows.append(Row(token, span.start + index, span.blocks, index >= first_wanted))
    return rows
