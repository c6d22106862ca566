"""Rotation frequencies: plain, linearly scaled, divided by a file's own factors (llama 3), and YaRN. All in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fucina.errors import UnsupportedModel
from fucina.models.metadata import Integer, MetadataReader, Real, Text

SCALING_TYPES = ("none", "linear", "yarn")


@dataclass(frozen=True, slots=True)
class Rope:
    """Radians per position, (d_rotary / 2,) f64, and what cosines and sines are multiplied by."""

    inv_freq: NDArray[np.float64]
    magnitude: float = 1.0


def plain_rope(d_rotary: int, base: float) -> Rope:
    """inv_freq[i] = base^(-2i / d_rotary)."""
    return Rope(base ** (-np.arange(0, d_rotary, 2, dtype=np.float64) / d_rotary))


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """YaRN: slow rotations are interpolated by `factor`, fast ones kept, with a ramp between.

    Source: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023, section 3.
    """

    factor: float
    original_context_length: int
    beta_fast: float
    beta_slow: float
    magnitude: float | None

    def apply(self, rope: Rope, base: float) -> Rope:
        """The frequencies between interpolated and kept, and the paper's scale of attention on cosines and sines."""
        half = len(rope.inv_freq)
        low = max(math.floor(self._dimension(self.beta_fast, half, base)), 0)
        high = min(math.ceil(self._dimension(self.beta_slow, half, base)), 2 * half - 1)
        ramp = np.clip((np.arange(half) - low) / max(high - low, 0.001), 0.0, 1.0)
        inv_freq = rope.inv_freq * (1.0 - ramp) + rope.inv_freq / self.factor * ramp
        default = 1.0 if self.factor <= 1.0 else 0.1 * math.log(self.factor) + 1.0
        return Rope(inv_freq, default if self.magnitude is None else self.magnitude)

    def _dimension(self, rotations: float, half: int, base: float) -> float:
        """The (fractional) index i whose frequency turns that often within the original context."""
        return half * math.log(self.original_context_length / (rotations * 2.0 * math.pi)) / math.log(base)


def scaled_rope(
    meta: MetadataReader, d_rotary: int, base: float, context_length: int, factors: NDArray[np.float64] | None = None
) -> Rope:
    """The rotation that `rope.scaling.*` asks for; `factors` (d_rotary / 2,) divide the frequencies.

    Raises UnsupportedModel for a scaling that is not implemented, BadHeader for values that cannot be.
    """
    kind = meta.optional("rope.scaling.type", Text())
    factor, older = (meta.optional(key, Real(inclusive=True)) for key in ("rope.scaling.factor", "rope.scale_linear"))
    factor = factor or older
    if kind is None:
        kind = "linear" if factor else "none"
    if kind not in SCALING_TYPES:
        raise UnsupportedModel(
            f"{meta.path}: '{meta.architecture}.rope.scaling.type' is '{kind}', which is not implemented; "
            f"what runs: {', '.join(SCALING_TYPES)}"
        )
    rope = plain_rope(d_rotary, base)
    if factors is not None:
        rope = Rope(rope.inv_freq / factors)
    yarn = _read_yarn(meta, factor or 1.0, context_length)
    if kind == "linear":
        rope = Rope(rope.inv_freq / (factor or 1.0))
    elif kind == "yarn":
        rope = yarn.apply(rope, base)
    return Rope(rope.inv_freq, rope.magnitude * (meta.optional("rope.scaling.attn_factor", Real()) or 1.0))


def _read_yarn(meta: MetadataReader, factor: float, context_length: int) -> Yarn:
    meta.must_equal("rope.scaling.yarn_ext_factor", 1, -1, why="only full YaRN extrapolation is implemented")
    original = meta.optional("rope.scaling.original_context_length", Integer(1, 2**31 - 1))
    return Yarn(
        factor=factor,
        original_context_length=original or context_length,
        beta_fast=meta.optional("rope.scaling.yarn_beta_fast", Real(1e-6)) or 32.0,
        beta_slow=meta.optional("rope.scaling.yarn_beta_slow", Real(1e-6)) or 1.0,
        magnitude=meta.optional("rope.scaling.yarn_attn_factor", Real()),
    )
