"""llama: Llama 1 to 3, SmolLM, Mistral without windows, Mixtral, and whatever else converters store under this name.

Converters permute the rows of the q and k matrices, so rotation pairs neighbors ('interleaved'). Llama 3's scaled
frequencies come as divisors in a tensor of their own. With experts (Mixtral), a row's weights add up to one, and each
expert is as wide as a dense layer would be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fucina.errors import BadTensor
from fucina.models.blocks.experts import MOST_EXPERTS, ExpertsShape, read_experts
from fucina.models.blocks.rope import scaled_rope
from fucina.models.blocks.shape import DecoderShape, LayerShape, read_dimensions, refuse_window
from fucina.models.metadata import Integer, MetadataReader
from fucina.models.tensors import TensorReader

ROPE_FACTORS = "rope_freqs.weight"


def describe(meta: MetadataReader, tensors: TensorReader) -> DecoderShape:
    """Understand a file of this family. Raises ModelFileError, UnsupportedModel."""
    size = read_dimensions(meta, tensors)
    refuse_window(meta, size.context_length)
    factors = _read_rope_factors(tensors, size.d_rotary // 2)
    return DecoderShape(
        dimensions=size,
        layers=(LayerShape(),) * size.n_layers,
        ropes=(scaled_rope(meta, size.d_rotary, size.rope_base, size.context_length, factors),),
        rope_style="interleaved",
        attention_scale=size.d_head**-0.5,
        experts=_read_experts(meta, size.d_ff),
    )


def _read_experts(meta: MetadataReader, d_ff: int) -> ExpertsShape | None:
    """None for a dense file, which may say that it has 0 experts. Raises ModelFileError, UnsupportedModel."""
    if not meta.optional("expert_count", Integer(0, MOST_EXPERTS)):
        return None
    return read_experts(meta, d_ff, renormalize=True, divided=False)


def _read_rope_factors(tensors: TensorReader, n_frequencies: int) -> NDArray[np.float64] | None:
    """Divisors of the frequencies, (d_rotary / 2,) f64, or None without the tensor. Raises BadTensor."""
    if ROPE_FACTORS not in tensors:
        return None
    factors = tensors.vector(ROPE_FACTORS, n_frequencies).astype(np.float64)
    if not np.all(np.isfinite(factors) & (factors > 0)):
        raise BadTensor(tensors.path, f"tensor '{ROPE_FACTORS}' must hold finite numbers above 0")
    return factors
