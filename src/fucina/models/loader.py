"""From an open GGUF file to a model that computes: the only place that assembles models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fucina.core.shapes import KV_BLOCK
from fucina.errors import BadTensor, CapacityError, ConfigError, MissingKey
from fucina.models.blocks.decoder import BoundDecoder, LayerProgress, bind_decoder, room_width, slab_widths
from fucina.models.blocks.experts import ExpertsWeights
from fucina.models.blocks.shape import EMBEDDING, DecoderShape
from fucina.models.blocks.weights import DecoderWeights, take_weights
from fucina.models.metadata import MetadataReader
from fucina.models.pooling import Pooling, read_pooling
from fucina.models.registry import family
from fucina.models.streaming import ExpertStream, stream_experts
from fucina.models.tensors import TensorReader
from fucina.ops.batch import Batch
from fucina.ops.seam import LeavesOutExperts, Ops
from fucina.storage.download import Progress
from fucina.storage.experts.options import StreamOptions
from fucina.storage.experts.stats import ExpertsLeftOut
from fucina.storage.gguf import GgufFile, StringArray
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool


class DecoderLM:
    """A CausalLM: a bound tape over one KV pool. One thread at a time."""

    def __init__(
        self,
        ops: Ops,
        decoder: BoundDecoder,
        pool: KvPool,
        context_length: int,
        *,
        family: str,
        can_rewind: bool,
        pooling: Pooling | None,
        experts: ExpertStream | None,
        left_out: ExpertsLeftOut | None = None,
    ) -> None:
        #: What reads routed experts when a pass needs them; None where all are in memory, or there are none.
        self.experts = experts
        #: What leaving out experts changed so far; None for a model that computes what its file says.
        self.left_out = left_out
        self._ops, self._decoder, self._pool, self._context_length = ops, decoder, pool, context_length
        self._family, self._can_rewind, self._pooling = family, can_rewind, pooling
        self._one_row = decoder.logits.array(1)  # plain decoding asks for nothing else, and a view is not free

    @property
    def family(self) -> str:
        """The file's general.architecture."""
        return self._family

    @property
    def can_rewind(self) -> bool:
        """Whether the cache can be cut back to any earlier length."""
        return self._can_rewind

    @property
    def vocab(self) -> int:
        """Width of a row of logits, padding ids included."""
        return self._decoder.logits.width

    @property
    def d_model(self) -> int:
        """Width of a row of hidden states."""
        return self._decoder.hidden.width

    @property
    def pooling(self) -> Pooling | None:
        """How the file wants the hidden states of a text made into one vector; None where it does not say."""
        return self._pooling

    @property
    def context_length(self) -> int:
        """Positions a sequence may have: what the model was made for, or the smaller number asked for at load."""
        return self._context_length

    @property
    def max_rows(self) -> int:
        """Rows that one pass can take."""
        return self._ops.max_rows

    @property
    def kv_geometry(self) -> KvGeometry:
        """What one block of positions costs in the cache."""
        return self._pool.geometry

    @property
    def kv_pool(self) -> KvPool:
        """The pool whose blocks a Batch may name."""
        return self._pool

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Compute every row of `batch`; logits (batch.n_logits, vocab) f32, borrowed. Raises ShapeError."""
        self._ops.run(self._decoder.tape, batch)
        n_logits = batch.n_logits
        return self._one_row if n_logits == 1 else self._decoder.logits.array(n_logits)

    def forward_hidden(self, batch: Batch) -> NDArray[np.float32]:
        """Compute every row of `batch`; hidden states (batch.n_rows, d_model) f32, borrowed. Raises ShapeError."""
        return self._decoder.run_hidden(self._ops, batch)


@dataclass(frozen=True, slots=True)
class ExpertsHeld:
    """The routed experts of a model: how many a layer has and a token uses, and their bytes.

    `d_expert` and `d_shared` are the widths of one and of what all tokens share beside them (0: nothing).
    """

    n_layers: int
    n_experts: int
    n_used: int
    d_expert: int
    d_shared: int
    expert_bytes: int

    @property
    def total_bytes(self) -> int:
        """All experts of all layers."""
        return self.n_layers * self.n_experts * self.expert_bytes


@dataclass(frozen=True, slots=True)
class MemoryNeeded:
    """What a model takes, in bytes. `weights_bytes` stay mapped from the file; the rest is this process's own.

    `experts` says what part of the weights are routed experts; None in a model without.
    """

    weights_bytes: int
    experts: ExpertsHeld | None
    kv_bytes_per_position: int
    kv_bytes: int
    workspace_bytes: int

    @property
    def total_bytes(self) -> int:
        """Everything together."""
        return self.weights_bytes + self.kv_bytes + self.workspace_bytes


def load_causal_lm(
    gguf: GgufFile,
    ops: Ops,
    *,
    context: int | None = None,
    kv_format: str = "f16",
    kv_capacity_blocks: int | None = None,
    stream: StreamOptions | None = None,
    expert_top_p: float | None = None,
    progress: Progress | None = None,
) -> DecoderLM:
    """Bind a model to a fresh backend, with a KV pool of its own.

    `context`: positions of the longest sequence (None: what the model was made for). `kv_capacity_blocks`: blocks of 64
    positions in the pool (None: one longest sequence). Memory is only taken as positions are written. `stream`: read
    routed experts from the file when a pass needs them (None: hold them all). `expert_top_p`: leave out the least of a
    row's experts, which changes what is computed (None: do not). `progress` is told the bytes of weights that are
    ready.

    Raises ModelFileError, UnsupportedModel, ConfigError, CapacityError (no such range of memory).
    """
    shape, weights, pooling = _understand(gguf)
    shape, left_out = _leave_out(shape, ops, expert_top_p)
    positions = _checked_context(shape, context)
    geometry = _kv_geometry(shape, kv_format)
    pool = _make_pool(geometry, -(-positions // KV_BLOCK) if kv_capacity_blocks is None else kv_capacity_blocks)
    ops.bind_pool(pool)
    experts = None if stream is None else _stream(gguf, weights, ops, stream)
    pilot = None if experts is None else experts.pilot
    decoder = bind_decoder(shape, weights, ops, _layer_progress(gguf, progress), pilot)
    if experts is not None:
        experts.fill()
    name = str(gguf.metadata["general.architecture"])
    return DecoderLM(
        *(ops, decoder, pool, positions),
        family=name,
        can_rewind=shape.can_rewind,
        pooling=pooling,
        experts=experts,
        left_out=left_out,
    )


def _leave_out(shape: DecoderShape, ops: Ops, top_p: float | None) -> tuple[DecoderShape, ExpertsLeftOut | None]:
    """The shape of a model that leaves out experts, and what counts them."""
    if top_p is None:
        return shape, None
    if shape.experts is None:
        raise ConfigError("moe_expert_top_p", got=top_p, expected="none: this model has no routed experts")
    assert isinstance(ops, LeavesOutExperts), "both backends do"
    return replace(shape, experts=replace(shape.experts, top_p=top_p)), ExpertsLeftOut(top_p, ops.expert_uses)


def _stream(gguf: GgufFile, weights: DecoderWeights, ops: Ops, options: StreamOptions) -> ExpertStream:
    blocks = [layer.feed_forward for layer in weights.layers]
    routed = [block.experts for block in blocks if isinstance(block, ExpertsWeights)]
    if not routed:
        raise ConfigError("moe_stream", got=True, expected="False: this model has no routed experts")
    return stream_experts(gguf, ops, routed, options)


def _layer_progress(gguf: GgufFile, progress: Progress | None) -> LayerProgress | None:
    """Layers that are ready, as bytes; layers are about equal, and nearly all of a model."""
    if progress is None:
        return None
    what, n_bytes = f"loading {gguf.path.name}", sum(weight.data.nbytes for weight in gguf.weights.values())
    return lambda done, n_layers: progress(what, n_bytes * done // n_layers, n_bytes)


def memory_needed(
    gguf: GgufFile, context: int | None = None, *, kv_format: str = "f16", max_rows: int = 512
) -> MemoryNeeded:
    """What `load_causal_lm` and one sequence of `context` positions will take, before any of it is taken.

    The workspace is counted for passes of `max_rows` rows with one row of logits.
    Raises ModelFileError, UnsupportedModel, ConfigError.
    """
    shape, weights, _ = _understand(gguf)
    geometry = _kv_geometry(shape, kv_format)
    n_blocks = -(-_checked_context(shape, context) // KV_BLOCK)
    widths = slab_widths(shape)
    logits = widths.pop("logits")
    return MemoryNeeded(
        weights_bytes=sum(weight.data.nbytes for weight in gguf.weights.values()),
        experts=_experts_held(shape, weights),
        kv_bytes_per_position=geometry.block_bytes // KV_BLOCK,
        kv_bytes=n_blocks * geometry.block_bytes,
        workspace_bytes=4 * (max_rows * (sum(widths.values()) + room_width(shape)) + logits),
    )


def _understand(gguf: GgufFile) -> tuple[DecoderShape, DecoderWeights, Pooling | None]:
    """Everything the file says about the model, checked; nothing allocated but norms and biases."""
    path = str(gguf.path)
    architecture = gguf.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise MissingKey(path, "metadata key 'general.architecture' is missing or no string: which model is this?")
    meta, tensors = MetadataReader(path, gguf.metadata, architecture), TensorReader(path, gguf.weights)
    shape = family(path, architecture)(meta, tensors)
    pooling = read_pooling(meta)
    meta.finish()
    weights = take_weights(tensors, shape)
    tensors.finish()
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, StringArray) and len(tokens) > shape.dimensions.vocab:
        raise BadTensor(path, f"tensor '{EMBEDDING}' has {shape.dimensions.vocab} rows for {len(tokens)} tokens")
    return shape, weights, pooling


def _experts_held(shape: DecoderShape, weights: DecoderWeights) -> ExpertsHeld | None:
    if shape.experts is None:
        return None
    n_bytes = sum(
        layer.feed_forward.bytes for layer in weights.layers if isinstance(layer.feed_forward, ExpertsWeights)
    )
    return ExpertsHeld(
        n_layers=len(weights.layers),
        n_experts=shape.experts.n_experts,
        n_used=shape.experts.n_used,
        d_expert=shape.experts.d_expert,
        d_shared=shape.experts.d_shared,
        expert_bytes=n_bytes // (len(weights.layers) * shape.experts.n_experts),
    )


def _checked_context(shape: DecoderShape, context: int | None) -> int:
    longest = shape.dimensions.context_length
    if context is None:
        return longest
    if not 1 <= context <= longest:
        raise ConfigError("context", got=context, expected=f"1 to {longest}, what the model was made for")
    return context


def _kv_geometry(shape: DecoderShape, kv_format: str) -> KvGeometry:
    heads = LayerGeometry(shape.dimensions.kv_heads, shape.dimensions.d_head)
    return KvGeometry((heads,) * len(shape.layers), kv_format)


def _make_pool(geometry: KvGeometry, capacity: int) -> KvPool:
    try:
        return KvPool(geometry, capacity)
    except (OSError, OverflowError, ValueError) as error:
        raise CapacityError(
            f"no {capacity} KV blocks of {geometry.block_bytes} bytes here ({error}): ask for a smaller context"
        ) from error
