"""Taking a model's tensors by name and shape, and noticing those that nobody took."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fucina.errors import BadTensor, UnsupportedModel
from fucina.ops.reference.dequant import dequantize
from fucina.storage.weights import Weight, WeightSet


@dataclass(frozen=True, slots=True)
class Affine:
    """A matrix (d_out, d_in) and, where the file has one, its bias (d_out,) f32."""

    weight: Weight
    bias: NDArray[np.float32] | None = None


class TensorReader:
    """Tensors of one file, checked when they are taken; `finish` refuses a file with tensors that were not."""

    def __init__(self, path: str, weights: WeightSet) -> None:
        self.path = path
        self._weights = weights
        self._untaken = set(weights)

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def rows(self, name: str) -> int:
        """Rows of a matrix whose height the metadata do not say. Raises MissingTensor, BadTensor."""
        weight = self._weights.get(name) or self._weights.require(name)
        if len(weight.shape) != 2:
            raise BadTensor(self.path, f"tensor '{name}' has {len(weight.shape)} dimensions, this model needs 2")
        return weight.shape[0]

    def matrix(self, name: str, d_out: int, d_in: int) -> Weight:
        """The tensor of exactly this shape. Raises MissingTensor, BadTensor."""
        return self._take(name, d_out, d_in)

    def stack(self, name: str, count: int, d_out: int, d_in: int) -> Weight:
        """The tensor of so many matrices of exactly this shape. Raises MissingTensor, BadTensor."""
        return self._take(name, count, d_out, d_in)

    def row(self, name: str, d_in: int) -> Weight:
        """A one-dimensional tensor (d_in,) as the matrix (1, d_in). Raises MissingTensor, BadTensor."""
        return replace(self._take(name, d_in), shape=(1, d_in))

    def vector(self, name: str, width: int) -> NDArray[np.float32]:
        """A one-dimensional tensor as (width,) f32. Raises MissingTensor, BadTensor."""
        weight = self._take(name, width)
        return dequantize(weight.data, weight.format).reshape(width)

    def affine(self, stem: str, d_out: int, d_in: int, *, bias_required: bool = False) -> Affine:
        """`stem.weight` and `stem.bias`. Raises MissingTensor, BadTensor."""
        weight = self.matrix(f"{stem}.weight", d_out, d_in)
        if not bias_required and f"{stem}.bias" not in self:
            return Affine(weight)
        return Affine(weight, self.vector(f"{stem}.bias", d_out))

    def finish(self) -> None:
        """Refuse tensors that were not taken: computing without them would be wrong. Raises UnsupportedModel."""
        if self._untaken:
            names = sorted(self._untaken)
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise UnsupportedModel(f"{self.path}: tensors that this family does not use: {', '.join(names[:5])}{more}")

    def _take(self, name: str, *shape: int) -> Weight:
        weight = self._weights.require(name, *shape)
        self._untaken.discard(name)
        return weight
