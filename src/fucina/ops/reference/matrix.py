"""A weight as a float32 matrix: dequantized when first needed, multiplied one row of activations at a time.

Memory: a weight up to KEEP_BYTES stays dequantized, at four bytes a weight (seven times a Q4_K file). A larger one,
such as the head of a big vocabulary, is dequantized again in slices of at most SLICE_BYTES for every call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fucina.core.formats import SUPPORTED, supported_names
from fucina.errors import UnsupportedFormat
from fucina.ops.reference.dequant import dequantize
from fucina.ops.reference.quantize import round_trip
from fucina.storage.weights import Weight

KEEP_BYTES = 256 * 2**20
SLICE_BYTES = 64 * 2**20


class Matrix:
    """A weight (d_out, d_in) that multiplies."""

    def __init__(self, weight: Weight) -> None:
        if weight.format.type_id not in SUPPORTED:
            raise UnsupportedFormat(
                f"{weight.name}: {weight.format.name} has no kernels; what runs: {supported_names()}"
            )
        self.weight = weight
        self._packed = weight.data.reshape(weight.d_out, -1)
        self._kept: NDArray[np.float32] | None = None

    def rows(self, indexes: Sequence[int]) -> NDArray[np.float32]:
        """Only these rows, (len(indexes), d_in) f32."""
        return self._dequantize(self._packed[list(indexes)])

    def products(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """inputs @ weight.T, (rows, d_in) to (rows, d_out) f32.

        Each row is a product of its own with the same shapes whatever the number of rows, so it gets the same bits.
        """
        block = self.weight.format.block_weights
        if block > 1:
            inputs = np.stack([round_trip(x, block) for x in inputs])
        out = np.empty((len(inputs), self.weight.d_out), np.float32)
        for start, part in self._slices():
            for x, y in zip(inputs, out, strict=True):
                y[start : start + len(part)] = part @ x
        return out

    def _slices(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """(first row, dequantized rows) over the whole matrix."""
        row_bytes = self.weight.d_in * 4
        if row_bytes * self.weight.d_out <= KEEP_BYTES:
            if self._kept is None:
                self._kept = self._dequantize(self._packed)
            yield 0, self._kept
            return
        step = max(1, SLICE_BYTES // row_bytes)
        for start in range(0, self.weight.d_out, step):
            yield start, self._dequantize(self._packed[start : start + step])

    def _dequantize(self, packed: NDArray[np.uint8]) -> NDArray[np.float32]:
        flat = np.ascontiguousarray(packed).reshape(-1)
        return dequantize(flat, self.weight.format).reshape(len(packed), self.weight.d_in)
