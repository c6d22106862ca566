"""qwen3: Qwen 3, dense: q and k are normalized per head."""

from __future__ import annotations

from fucina.models.blocks.rope import scaled_rope
from fucina.models.blocks.shape import DecoderShape, LayerShape, read_dimensions, refuse_window
from fucina.models.metadata import MetadataReader
from fucina.models.tensors import TensorReader


def describe(meta: MetadataReader, tensors: TensorReader) -> DecoderShape:
    """Understand a file of this family. Raises ModelFileError, UnsupportedModel."""
    size = read_dimensions(meta, tensors)
    refuse_window(meta, size.context_length)
    return DecoderShape(
        dimensions=size,
        layers=(LayerShape(),) * size.n_layers,
        ropes=(scaled_rope(meta, size.d_rotary, size.rope_base, size.context_length),),
        rope_style="halves",
        attention_scale=size.d_head**-0.5,
        qk_norm=True,
    )
