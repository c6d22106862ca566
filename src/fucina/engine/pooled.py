"""Many hidden states to one vector. Sums are taken in one order, so that no schedule shows in a bit of it."""

from __future__ import annotations

from math import fsum, sqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fucina.errors import BadLogits, ConfigError, UnsupportedModel
from fucina.models.pooling import Pooling

#: The vector of a text: the mean of the hidden states of its tokens, or that of the first ('cls') or the last.
TextPooling = Literal["mean", "cls", "last"]


def chosen_pooling(said: Pooling | None, asked: TextPooling | None) -> TextPooling:
    """The pooling that a caller asked for, else what the model's file said, else the mean.

    Raises ConfigError for another word, and UnsupportedModel where it would be the file's 'rank'.
    """
    if asked is not None:
        if asked not in get_args(TextPooling):
            raise ConfigError("pooling", got=asked, expected="'mean', 'cls' or 'last'")
        return asked
    if said == "rank":
        raise UnsupportedModel(
            "this model's file says pooling 'rank', the score of a pair of texts, which is not implemented: "
            "for a vector of its hidden states ask for pooling 'mean', 'cls' or 'last'"
        )
    return "mean" if said is None or said == "none" else said


class Pooled:
    """The vector of one text while its rows come, first to last."""

    def __init__(self, pooling: TextPooling, d_model: int) -> None:
        self._pooling = pooling
        self._total = np.zeros(d_model, np.float64)
        self._n_rows = 0

    def add(self, rows: NDArray[np.float32]) -> None:
        """Take the next rows (rows, d_model), at least one."""
        if self._pooling == "mean":
            for row in rows:  # NumPy may sum several in an order of its own
                self._total += row
        elif self._pooling == "last" or self._n_rows == 0:
            self._total[:] = rows[-1 if self._pooling == "last" else 0]
        self._n_rows += len(rows)

    def vector(self, *, normalize: bool) -> NDArray[np.float32]:
        """The vector (d_model,) f32, divided by its length with `normalize`; zeros stay zeros. Raises BadLogits."""
        vector = self._total / self._n_rows if self._pooling == "mean" else self._total
        if not np.isfinite(vector).all():
            raise BadLogits("the model gave hidden states that are no finite numbers: its file may be damaged")
        length = sqrt(fsum((vector * vector).tolist())) if normalize else 1.0
        return (vector / length if length else vector).astype(np.float32)
