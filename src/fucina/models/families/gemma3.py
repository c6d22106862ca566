"""gemma3: Gemma 3, text: five windowed layers for each global one, two rope bases, a norm after each branch as well.

The file stores norm weights with their 1 already added.
"""

from __future__ import annotations

import math

import numpy as np

from fucina.errors import BadHeader, UnsupportedModel
from fucina.models.blocks.rope import plain_rope, scaled_rope
from fucina.models.blocks.shape import DecoderShape, Dimensions, LayerShape, read_dimensions
from fucina.models.metadata import Integer, MetadataReader, Real
from fucina.models.tensors import TensorReader

GLOBAL_ROPE, LOCAL_ROPE = 0, 1

#: The 27B model is known by its depth; it alone scales queries by the width of the model's heads, not of its keys.
LAYERS_OF_27B = 62


def describe(meta: MetadataReader, tensors: TensorReader) -> DecoderShape:
    """Understand a file of this family. Raises ModelFileError, UnsupportedModel."""
    size = read_dimensions(meta, tensors)
    local_base = meta.optional("rope.freq_base_swa", Real(1.0)) or 10_000.0
    query_width = size.d_model // size.heads if size.n_layers == LAYERS_OF_27B else size.d_head
    return DecoderShape(
        dimensions=size,
        layers=_read_layers(meta, size),
        ropes=(
            scaled_rope(meta, size.d_rotary, size.rope_base, size.context_length),
            plain_rope(size.d_rotary, local_base),
        ),
        rope_style="halves",
        attention_scale=query_width**-0.5,
        activation="gelu",
        embedding_scale=math.sqrt(size.d_model),
        qk_norm=True,
        post_norms=True,
    )


def _read_layers(meta: MetadataReader, size: Dimensions) -> tuple[LayerShape, ...]:
    """Which layers look through the window. Without a window in the file, none."""
    window = meta.optional("attention.sliding_window", Integer(1, 2**31 - 1))
    local = _read_pattern(meta, size.n_layers)
    if window is None:
        return (LayerShape(rope=GLOBAL_ROPE),) * size.n_layers
    return tuple(LayerShape(rope=LOCAL_ROPE, window=window) if is_local else LayerShape() for is_local in local)


def _read_pattern(meta: MetadataReader, n_layers: int) -> list[bool]:
    """Per layer, whether it is local: from a period (its last layer is global) or from one flag a layer."""
    key = "attention.sliding_window_pattern"
    pattern = meta.raw(key)
    if pattern is None:
        pattern = 6
    if isinstance(pattern, int) and not isinstance(pattern, bool):
        if pattern < 1:
            raise BadHeader(meta.path, f"'{meta.architecture}.{key}' is {pattern}, not a period of at least 1")
        return [i % pattern != pattern - 1 for i in range(n_layers)]
    if not isinstance(pattern, np.ndarray) or pattern.shape != (n_layers,):
        raise UnsupportedModel(f"{meta.path}: '{meta.architecture}.{key}' is neither a period nor one flag a layer")
    return [bool(flag) for flag in pattern]
