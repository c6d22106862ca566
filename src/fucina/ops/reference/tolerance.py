"""How closely the native backend agrees with this one, op by op, and why not exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allowed: |got - expected| <= absolute + relative * (largest |expected| of the same row)."""

    absolute: float
    relative: float
    because: str

    def excess(self, got: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
        """The largest difference as a multiple of what is allowed: agreement is at most 1; both (rows, width) f32."""
        allowed = self.absolute + self.relative * np.abs(expected).max(axis=-1, keepdims=True)
        return float((np.abs(got.astype(np.float64) - expected) / allowed).max())


EMBED = Tolerance(1e-7, 1e-7, because="one f32 product a value: a different rounding of the dequantized weight")
ROPE_ANGLES = Tolerance(2e-7, 0.0, because="cos and sin of two libraries in f64, rounded once to f32")
LINEAR = Tolerance(1e-6, 4e-6, because="the same terms in f32, added up over d_in in another order")
LINEAR_OF_ROUNDED = Tolerance(
    1e-6,
    2e-3,
    because="the last bit of a norm or an activation can carry a value over a rounding boundary: one step of 1/127 of "
    "its block's largest value in the input of a quantized product",
)
ATTENTION = Tolerance(
    1e-6, 2e-4, because="the last bit of a rotation can carry a key over a rounding boundary of the cache's format"
)
ATTENTION_OF_EIGHT_BITS = Tolerance(1e-6, 3e-3, because="as ATTENTION, with steps of 1/127 of the largest of 32 values")
ADD_NORM = Tolerance(1e-6, 1e-6, because="one reduction over d_model in f32 lanes, against f64 here")
