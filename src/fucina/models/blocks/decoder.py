"""The sentence of a decoder: embed; norm, attend, add, norm, feed forward, add, for every layer; norm, head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fucina.models.blocks.experts import ExpertsWeights, bind_experts, experts_room, experts_widths
from fucina.models.blocks.shape import DecoderShape
from fucina.models.blocks.weights import DecoderWeights, LayerWeights
from fucina.models.tensors import Affine
from fucina.ops.batch import Batch
from fucina.ops.seam import AttentionSpec, BoundOp, ExpertReader, Gate, Ops, Projection, RmsNorm, Slab

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Told how many layers are bound, and how many there are.
LayerProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class BoundDecoder:
    """A tape and where its logits (rows wanted, vocab) appear.

    `hidden_tape` ends with the last norm instead, added to `hidden` (rows, d_model).
    """

    tape: tuple[BoundOp, ...]
    logits: Slab
    hidden_tape: tuple[BoundOp, ...]
    hidden: Slab

    def run_hidden(self, ops: Ops, batch: Batch) -> NDArray[np.float32]:
        """Compute the hidden states behind the last norm, (batch.n_rows, d_model) f32, borrowed. Raises ShapeError."""
        n_rows = min(batch.n_rows, ops.max_rows)  # too many rows are the backend's to refuse
        hidden = self.hidden.array(n_rows)
        hidden.fill(0.0)
        ops.run(self.hidden_tape, batch)
        return hidden


def slab_widths(shape: DecoderShape, *, pilot: bool = False) -> dict[str, int]:
    """Every buffer of activations that a decoder of this shape uses, and its values per row."""
    size = shape.dimensions
    wide, narrow = size.heads * size.d_head, size.kv_heads * size.d_head
    widths = {"x": size.d_model, "q": wide, "k": narrow, "v": narrow, "attended": wide}
    widths |= {"hidden": size.d_model, "logits": size.vocab}
    if shape.experts is None:
        widths |= {"gate": size.d_ff, "up": size.d_ff}
    else:
        widths |= experts_widths(shape.experts, size.d_model, pilot=pilot)
    widths |= {f"angles{i}": size.d_rotary for i in range(len(shape.ropes))}
    return widths | ({"branch": size.d_model} if shape.post_norms else {})


def room_width(shape: DecoderShape) -> int:
    """f32 values per row that a backend keeps besides the slabs."""
    return 0 if shape.experts is None else experts_room(shape.experts, shape.dimensions.d_model)


def bind_decoder(
    shape: DecoderShape,
    weights: DecoderWeights,
    ops: Ops,
    progress: LayerProgress | None = None,
    pilot: ExpertReader | None = None,
) -> BoundDecoder:
    """Bind every op once, over buffers that all layers share. `ops` has its pool already.

    With a `pilot`, the next layer's router is asked before a layer's experts are computed.
    """
    slabs = {name: ops.slab(width) for name, width in slab_widths(shape, pilot=pilot is not None).items()}
    tape = [ops.embed("embed", weights.embedding, slabs["x"], scale=shape.embedding_scale)]
    for i, rope in enumerate(shape.ropes):
        tape.append(ops.rope_angles(f"rope.{i}", rope.inv_freq, slabs[f"angles{i}"], magnitude=rope.magnitude))
    for layer, layer_weights in enumerate(weights.layers):
        tape += _bind_attention(shape, layer, layer_weights, ops, slabs)
        *first, last = _bind_feed_forward(shape, layer, layer_weights, ops, slabs)
        tape += [*first, *_bind_pilot(shape, layer + 1, weights, slabs, pilot), last]
        if progress is not None:
            progress(layer + 1, len(weights.layers))
    head = ops.head("head", slabs["x"], weights.output_norm, weights.head, slabs["logits"])
    last_norm = ops.add_norm("output_norm", slabs["hidden"], slabs["x"], weights.output_norm)
    return BoundDecoder((*tape, head), slabs["logits"], (*tape, last_norm), slabs["hidden"])


def _bind_pilot(
    shape: DecoderShape, layer: int, weights: DecoderWeights, slabs: dict[str, Slab], pilot: ExpertReader | None
) -> list[BoundOp]:
    """What hints at the experts that `layer` is likely to need, from the state before it."""
    if pilot is None or shape.experts is None or layer == len(weights.layers):
        return []
    ahead = weights.layers[layer]
    assert isinstance(ahead.feed_forward, ExpertsWeights), "weights that were taken for this shape"
    router = Projection(ahead.feed_forward.router, slabs["guesses"])
    spec = shape.experts.spec(layer, shape.activation)
    return [pilot.pilot(f"blk.{layer}.pilot", slabs["x"], ahead.ffn_norm, router, spec)]


def _bind_attention(
    shape: DecoderShape, layer: int, weights: LayerWeights, ops: Ops, slabs: dict[str, Slab]
) -> list[BoundOp]:
    size, stem = shape.dimensions, f"blk.{layer}"
    q, k, v, attended = slabs["q"], slabs["k"], slabs["v"], slabs["attended"]
    spec = AttentionSpec(
        layer=layer,
        heads=size.heads,
        kv_heads=size.kv_heads,
        d_head=size.d_head,
        d_rotary=size.d_rotary,
        rope_style=shape.rope_style,
        scale=shape.attention_scale,
        window=shape.layers[layer].window,
        q_norm=weights.q_norm,
        k_norm=weights.k_norm,
    )
    qkv = [_project(weights.q, q), _project(weights.k, k), _project(weights.v, v)]
    return [
        ops.linear(f"{stem}.qkv", slabs["x"], qkv, norm=weights.attention_norm),
        ops.attention(f"{stem}.attention", spec, q, k, v, slabs[f"angles{shape.layers[layer].rope}"], attended),
        *_add_branch(f"{stem}.attn_output", attended, weights.o, None, weights.post_attention_norm, ops, slabs),
    ]


def _bind_feed_forward(
    shape: DecoderShape, layer: int, weights: LayerWeights, ops: Ops, slabs: dict[str, Slab]
) -> list[BoundOp]:
    stem, dense = f"blk.{layer}", weights.feed_forward
    if isinstance(dense, ExpertsWeights):
        assert shape.experts is not None, "weights that were taken for this shape"
        return bind_experts(stem, layer, shape.experts, dense, weights.ffn_norm, shape.activation, ops, slabs)
    gate, up = slabs["gate"], slabs["up"]
    gating = Gate(up, shape.activation)
    projections = [_project(dense.gate, gate), _project(dense.up, up)]
    return [
        ops.linear(f"{stem}.gate_up", slabs["x"], projections, norm=weights.ffn_norm),
        *_add_branch(f"{stem}.ffn_down", gate, dense.down, gating, weights.post_ffn_norm, ops, slabs),
    ]


def _add_branch(
    name: str,
    source: Slab,
    affine: Affine,
    gate: Gate | None,
    post_norm: RmsNorm | None,
    ops: Ops,
    slabs: dict[str, Slab],
) -> list[BoundOp]:
    """x += affine(source), or x += post_norm(affine(source))."""
    x = slabs["x"]
    if post_norm is None:
        return [ops.linear(name, source, [Projection(affine.weight, x, affine.bias, accumulate=True)], gate=gate)]
    branch = slabs["branch"]
    return [
        ops.linear(name, source, [_project(affine, branch)], gate=gate),
        ops.add_norm(f"{name}.add_norm", x, branch, post_norm),
    ]


def _project(affine: Affine, out: Slab) -> Projection:
    return Projection(affine.weight, out, affine.bias)
