"""The tensors of a decoder, under the names that GGUF gives them, checked against its shape."""

from __future__ import annotations

from dataclasses import dataclass

from fucina.models.blocks.experts import ExpertsWeights, take_experts
from fucina.models.blocks.shape import EMBEDDING, DecoderShape
from fucina.models.tensors import Affine, TensorReader
from fucina.ops.seam import RmsNorm
from fucina.storage.weights import Weight


@dataclass(frozen=True, slots=True)
class DenseWeights:
    """A feed-forward block that every row uses."""

    gate: Affine
    up: Affine
    down: Affine


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer; the optional norms are there exactly when the shape asks for them."""

    attention_norm: RmsNorm
    q: Affine
    k: Affine
    v: Affine
    o: Affine
    q_norm: RmsNorm | None
    k_norm: RmsNorm | None
    post_attention_norm: RmsNorm | None
    ffn_norm: RmsNorm
    feed_forward: DenseWeights | ExpertsWeights
    post_ffn_norm: RmsNorm | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWeights:
    """Everything a decoder multiplies by. `head` is the embedding when the file has no output matrix."""

    embedding: Weight
    layers: tuple[LayerWeights, ...]
    output_norm: RmsNorm
    head: Weight


def take_weights(tensors: TensorReader, shape: DecoderShape) -> DecoderWeights:
    """All tensors that `shape` needs, and no others. Raises MissingTensor, BadTensor, UnsupportedFormat."""
    size = shape.dimensions
    embedding = tensors.matrix(EMBEDDING, size.vocab, size.d_model)
    tied = "output.weight" not in tensors
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(_take_layer(tensors, shape, f"blk.{i}") for i in range(size.n_layers)),
        output_norm=RmsNorm(tensors.vector("output_norm.weight", size.d_model), size.eps),
        head=embedding if tied else tensors.matrix("output.weight", size.vocab, size.d_model),
    )


def _take_layer(tensors: TensorReader, shape: DecoderShape, stem: str) -> LayerWeights:
    size, bias = shape.dimensions, shape.qkv_bias_required
    wide, narrow = size.heads * size.d_head, size.kv_heads * size.d_head

    def norm(name: str, width: int) -> RmsNorm:
        return RmsNorm(tensors.vector(f"{stem}.{name}.weight", width), size.eps)

    return LayerWeights(
        attention_norm=norm("attn_norm", size.d_model),
        q=tensors.affine(f"{stem}.attn_q", wide, size.d_model, bias_required=bias),
        k=tensors.affine(f"{stem}.attn_k", narrow, size.d_model, bias_required=bias),
        v=tensors.affine(f"{stem}.attn_v", narrow, size.d_model, bias_required=bias),
        o=tensors.affine(f"{stem}.attn_output", size.d_model, wide),
        q_norm=norm("attn_q_norm", size.d_head) if shape.qk_norm else None,
        k_norm=norm("attn_k_norm", size.d_head) if shape.qk_norm else None,
        post_attention_norm=norm("post_attention_norm", size.d_model) if shape.post_norms else None,
        ffn_norm=norm("ffn_norm", size.d_model),
        feed_forward=_take_feed_forward(tensors, shape, stem),
        post_ffn_norm=norm("post_ffw_norm", size.d_model) if shape.post_norms else None,
    )


def _take_feed_forward(tensors: TensorReader, shape: DecoderShape, stem: str) -> DenseWeights | ExpertsWeights:
    size = shape.dimensions
    if shape.experts is not None:
        return take_experts(tensors, shape.experts, stem, size.d_model)
    return DenseWeights(
        gate=tensors.affine(f"{stem}.ffn_gate", size.d_ff, size.d_model),
        up=tensors.affine(f"{stem}.ffn_up", size.d_ff, size.d_model),
        down=tensors.affine(f"{stem}.ffn_down", size.d_model, size.d_ff),
    )
