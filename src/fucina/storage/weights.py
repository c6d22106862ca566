"""Weights as a file stores them: name -> bytes, format and shape. No arithmetic, no copies."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fucina.core.formats import Format
from fucina.errors import BadTensor, MissingTensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor's bytes begin: a file, and the offset from its start."""

    path: Path
    offset: int


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor, borrowed from the mapped file.

    `shape` is row-major with the summed axis last: (d_out, d_in) for a matrix, (width,) for a vector.
    `data` is a flat, read-only uint8 view of exactly the tensor's bytes; it keeps the mapping alive.
    `place` says where they lie in the file, for readers that must not touch the mapping; None: in no file.
    """

    name: str
    format: Format
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    place: Place | None = None

    @property
    def d_in(self) -> int:
        """Length of the last axis."""
        return self.shape[-1]

    @property
    def d_out(self) -> int:
        """Product of all axes but the last."""
        n = 1
        for dim in self.shape[:-1]:
            n *= dim
        return n

    def parts(self) -> tuple[Weight, ...]:
        """The weights that are stacked along the first axis, each with one axis less, in the same bytes."""
        pieces = self.data.reshape(self.shape[0], -1)
        shape = self.shape[1:]
        return tuple(Weight(f"{self.name}[{i}]", self.format, shape, piece) for i, piece in enumerate(pieces))


class WeightSet(Mapping[str, Weight]):
    """All tensors of a model by name, over one file or several parts."""

    def __init__(self, path: str, weights: Mapping[str, Weight]) -> None:
        self._path, self._weights = path, dict(weights)

    def __getitem__(self, name: str) -> Weight:
        return self._weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def require(self, name: str, *shape: int) -> Weight:
        """The tensor of that name and exactly that shape. Raises MissingTensor (with the nearest name), BadTensor."""
        weight = self._weights.get(name)
        if weight is None:
            nearest = difflib.get_close_matches(name, self._weights, n=1)
            hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
            raise MissingTensor(self._path, f"tensor '{name}' is missing{hint}")
        if weight.shape != shape:
            raise BadTensor(self._path, f"tensor '{name}' has shape {weight.shape}, this model needs {shape}")
        return weight
