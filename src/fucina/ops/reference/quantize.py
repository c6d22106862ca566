"""Rounding activations to int8 per block: what a quantized product really multiplies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quantize_blocks(x: NDArray[np.float32], block: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Integers (n / block, block) and scales (n / block,) f32, so that x is about integers * scales; x (n,) f32.

    Per block: scale = amax / 127, integer = round-half-even(x * (127 / amax)), all in f32. A block whose largest
    value is 0, or so small that 127 / amax overflows, becomes zeros.
    """
    blocks = x.reshape(-1, block)
    amax = np.abs(blocks).max(axis=1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = np.float32(127) / amax
        inverse[~np.isfinite(inverse)] = 0
        integers = np.rint(blocks * inverse[:, None]).astype(np.int8)
    return integers, amax / np.float32(127)


def round_trip(x: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    """x (n,) f32 as it is after quantize_blocks: integers * scales, (n,) f32."""
    integers, scales = quantize_blocks(x, block)
    return (integers * scales[:, None]).reshape(-1)
