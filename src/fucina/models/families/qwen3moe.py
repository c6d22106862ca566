"""qwen3moe: Qwen 3 with experts: as qwen3, and the weights of a row's experts add up to one."""

from __future__ import annotations

from fucina.models.blocks.experts import read_experts
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
        experts=read_experts(meta, size.d_ff, renormalize=True),
    )
