"""What a decoder-only transformer of these families is, in numbers; read from metadata and checked."""

from __future__ import annotations

from dataclasses import dataclass

from fucina.errors import BadHeader, UnsupportedModel
from fucina.models.blocks.experts import ExpertsShape
from fucina.models.blocks.rope import Rope
from fucina.models.metadata import Integer, MetadataReader, Real
from fucina.models.tensors import TensorReader
from fucina.ops.seam import Activation, RopeStyle

EMBEDDING = "token_embd.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The sizes that every family of this kind has."""

    n_layers: int
    d_model: int
    d_ff: int
    heads: int
    kv_heads: int
    d_head: int
    d_rotary: int
    vocab: int
    context_length: int
    eps: float
    rope_base: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """What may differ from layer to layer: its rotation (an index into `ropes`) and its window."""

    rope: int = 0
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """A family's file, understood: enough to take its tensors and to bind its tape.

    `can_rewind`: the cache may be cut back to any length, for a position's entries depend on nothing behind it.
    With `experts`, every layer's feed forward is a mixture of them, and `d_ff` of the dimensions is not used.
    """

    dimensions: Dimensions
    layers: tuple[LayerShape, ...]
    ropes: tuple[Rope, ...]
    rope_style: RopeStyle
    attention_scale: float
    activation: Activation = "silu"
    embedding_scale: float = 1.0
    qkv_bias_required: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    can_rewind: bool = True
    experts: ExpertsShape | None = None


def read_dimensions(meta: MetadataReader, tensors: TensorReader) -> Dimensions:
    """The common hyperparameters, each in a range that a machine can have.

    Raises MissingKey, BadHeader, UnsupportedModel.
    """
    width = Integer(1, 2**20)
    heads = meta.required("attention.head_count", Integer(1, 2**12))
    d_model = meta.required("embedding_length", width)
    d_head = _read_d_head(meta, d_model, heads)
    return Dimensions(
        n_layers=meta.required("block_count", Integer(1, 512)),
        d_model=d_model,
        d_ff=meta.required("feed_forward_length", width),
        heads=heads,
        kv_heads=_read_kv_heads(meta, heads),
        d_head=d_head,
        d_rotary=_read_d_rotary(meta, d_head),
        vocab=tensors.rows(EMBEDDING),
        context_length=meta.required("context_length", Integer(1, 2**24)),
        eps=meta.required("attention.layer_norm_rms_epsilon", Real()),
        rope_base=meta.optional("rope.freq_base", Real(1.0)) or 10_000.0,
    )


def refuse_window(meta: MetadataReader, context_length: int) -> None:
    """Refuse a sliding window in a family that is computed without one. Raises UnsupportedModel."""
    window = meta.optional("attention.sliding_window", Integer(0, 2**31 - 1))
    if window and window < context_length:
        raise UnsupportedModel(
            f"{meta.path}: '{meta.architecture}.attention.sliding_window' is {window}, "
            f"which is not implemented for {meta.architecture}"
        )


def _read_kv_heads(meta: MetadataReader, heads: int) -> int:
    kv_heads = meta.optional("attention.head_count_kv", Integer(1, heads)) or heads
    if heads % kv_heads:
        raise BadHeader(
            meta.path,
            f"'{meta.architecture}.attention.head_count_kv' is {kv_heads}, which does not divide {heads} heads",
        )
    return kv_heads


def _read_d_head(meta: MetadataReader, d_model: int, heads: int) -> int:
    width = Integer(2, 2**12)
    d_head = meta.optional("attention.key_length", width)
    if d_head is None:
        if d_model % heads:
            raise BadHeader(
                meta.path, f"'{meta.architecture}.attention.head_count' is {heads}, which does not divide {d_model}"
            )
        d_head = d_model // heads
    if (d_value := meta.optional("attention.value_length", width)) not in (None, d_head):
        raise UnsupportedModel(
            f"{meta.path}: '{meta.architecture}.attention.value_length' is {d_value} beside keys of {d_head}, "
            "which is not implemented"
        )
    return d_head


def _read_d_rotary(meta: MetadataReader, d_head: int) -> int:
    d_rotary = meta.optional("rope.dimension_count", Integer(2, d_head)) or d_head
    if d_rotary % 2:
        raise BadHeader(meta.path, f"'{meta.architecture}.rope.dimension_count' is {d_rotary}, not an even number")
    return d_rotary
