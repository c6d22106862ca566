"""What happens inside one row: normalization, activation, rotation. In float64, rounded once at the end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fucina.ops.seam import Activation, RmsNorm, RopeStyle

_GELU_SCALE = np.sqrt(2.0 / np.pi)


def rms_norm(x: NDArray[np.float32], norm: RmsNorm) -> NDArray[np.float32]:
    """x / sqrt(mean(x^2) + eps) * weight; x and the result (width,) f32.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    wide = x.astype(np.float64)
    scale = 1.0 / np.sqrt(np.mean(wide * wide) + norm.eps)
    return np.asarray(wide * scale * norm.weight, np.float32)


def activate(x: NDArray[np.float32], activation: Activation) -> NDArray[np.float32]:
    """silu(x) = x / (1 + e^-x), or gelu in its tanh form; x and the result (width,) f32."""
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        if activation == "silu":
            return np.asarray(wide / (1.0 + np.exp(-wide)), np.float32)
        return np.asarray(0.5 * wide * (1.0 + np.tanh(_GELU_SCALE * (wide + 0.044715 * wide**3))), np.float32)


def rope_angles(position: int, inv_freq: NDArray[np.float64], magnitude: float) -> NDArray[np.float32]:
    """[cos(position * inv_freq), sin(...)] * magnitude, (d_rotary,) f32; inv_freq (d_rotary / 2,) f64."""
    angles = position * inv_freq
    return (np.concatenate([np.cos(angles), np.sin(angles)]) * magnitude).astype(np.float32)


def rotate(x: NDArray[np.float32], angles: NDArray[np.float32], style: RopeStyle) -> NDArray[np.float32]:
    """Rotate the first d_rotary values of every head; x and the result (heads, d_head) f32, angles (d_rotary,).

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
    """
    half = len(angles) // 2
    cos, sin = angles[:half].astype(np.float64), angles[half:].astype(np.float64)
    if style == "interleaved":
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    out = x.copy()
    out[:, first] = x[:, first] * cos - x[:, second] * sin
    out[:, second] = x[:, second] * cos + x[:, first] * sin
    return out
