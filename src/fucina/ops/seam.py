"""The verbs of a forward pass: the one file a porter reads.

A model is a *tape*: a flat list of bound ops. Binding checks every shape and allocates every buffer; running a tape
allocates nothing, and a backend may run the whole tape in one call (the native one does, without the GIL).

The law, for every verb: row r of an output depends on row r of the inputs (in attention: and on the cached positions
that row sees) and on nothing else, bit for bit: not on other rows, not on how many there are, not on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from fucina.ops.batch import Batch
from fucina.storage.experts.catalog import Catalog
from fucina.storage.experts.options import StreamOptions
from fucina.storage.experts.residency import LayerCost, Residency
from fucina.storage.experts.stats import ExpertStats
from fucina.storage.kv.pool import KvPool
from fucina.storage.weights import Weight

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Activation = Literal["silu", "gelu"]
Planner = Callable[[Sequence[LayerCost]], Residency]
RopeStyle = Literal["interleaved", "halves"]


class Slab(Protocol):
    """A buffer of activations, (max_rows, width) f32, owned by the backend that made it."""

    @property
    def width(self) -> int:
        """Values per row."""

    def array(self, rows: int) -> NDArray[np.float32]:
        """The first `rows` rows, (rows, width) f32, borrowed and writable: valid until the next run."""


class BoundOp(Protocol):
    """One verb with its weights and buffers, checked when it was bound. Only the backend that bound it can run it."""

    @property
    def name(self) -> str:
        """What it does and where, for messages and profiles: 'blk.3.attention'."""


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """y = x / sqrt(mean(x^2) + eps) * weight, over the last axis; weight (width,) f32."""

    weight: NDArray[np.float32]
    eps: float


@dataclass(frozen=True, slots=True)
class Gate:
    """Feed-forward gating: the product's input is activation(x) * up. gelu is the tanh form."""

    up: Slab
    activation: Activation


@dataclass(frozen=True, slots=True)
class Projection:
    """out = x @ weight.T (+ bias), or out += that when `accumulate`; weight (d_out, d_in), bias (d_out,) f32."""

    weight: Weight
    out: Slab
    bias: NDArray[np.float32] | None = None
    accumulate: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of one layer, stacked: gate, up (n_experts, d_expert, d_model), down (n_experts, d_model,
    d_expert). Expert e of x is down_e @ (activation(gate_e @ x) * (up_e @ x))."""

    gate: Weight
    up: Weight
    down: Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSpec:
    """How a layer chooses among its experts and weighs them.

    A row uses the `n_used` experts that it scores highest, of equal scores the lower index first: that order is its
    ranks. Weights are the softmax over the scores of all experts; with `renormalize` divided by the sum of the chosen
    ones, added up by rank; then multiplied by `scale`. `layer` counts the layers with experts, from 0.

    `top_p` below 1 is not what the model means: of a row's experts only the first few stay, the fewest whose share of
    the weight of all `n_used` reaches it, and at least one. The others are left out, of the sum that weights are
    divided by, too.
    """

    layer: int
    n_experts: int
    n_used: int
    renormalize: bool
    scale: float = 1.0
    top_p: float = 1.0
    activation: Activation = "silu"


@dataclass(frozen=True, slots=True)
class SwitchedBranch:
    """What a mixture adds besides its experts: y (rows, d_model), weighed by the sigmoid of switch (rows, 1)."""

    y: Slab
    switch: Slab


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """The shape of one layer's attention.

    `window` is the number of positions a row sees, itself included (None: all before it). The first `d_rotary` values
    of each head are rotated: 'interleaved' pairs (2i, 2i+1), 'halves' pairs (i, i + d_rotary/2). `q_norm` and `k_norm`
    are applied to each head (weight (d_head,)) before the rotation. Scores are scaled by `scale`.
    """

    layer: int
    heads: int
    kv_heads: int
    d_head: int
    d_rotary: int
    rope_style: RopeStyle
    scale: float
    window: int | None = None
    q_norm: RmsNorm | None = None
    k_norm: RmsNorm | None = None


class Ops(Protocol):
    """A backend. Every `bind` method raises ShapeError when shapes do not fit, UnsupportedFormat for a weight it
    cannot compute with, and returns an op for tapes of this backend only."""

    @property
    def name(self) -> str:
        """'native/avx2', 'reference', ..."""

    @property
    def max_rows(self) -> int:
        """Rows that a pass can take; every slab has that many."""

    def slab(self, width: int) -> Slab:
        """A new buffer (max_rows, width) f32."""

    def embed(self, name: str, table: Weight, out: Slab, *, scale: float = 1.0) -> BoundOp:
        """out[r] = table[token of row r] * scale; table (vocab, d_model)."""

    def rope_angles(self, name: str, inv_freq: NDArray[np.float64], out: Slab, *, magnitude: float = 1.0) -> BoundOp:
        """out[r] = [cos(p * inv_freq) * magnitude, sin(p * inv_freq) * magnitude], p the position of row r.

        inv_freq (d_rotary / 2,) f64, out (max_rows, d_rotary).
        """

    def linear(
        self,
        name: str,
        x: Slab,
        projections: Sequence[Projection],
        *,
        norm: RmsNorm | None = None,
        gate: Gate | None = None,
    ) -> BoundOp:
        """Several products of one input, which is x, norm(x), or gate(x).

        Quantized weights: the input row is quantized per 32 (or, for K-formats, 256) values to int8 with an f32 scale;
        inside a block sums are integers, across blocks one f32 fma chain per output in ascending order (and a second
        one for the minima, combined at the end). Float weights: one f32 fma chain per output over d_in ascending.
        """

    def attention(self, name: str, spec: AttentionSpec, q: Slab, k: Slab, v: Slab, angles: Slab, out: Slab) -> BoundOp:
        """Normalise and rotate q and k, write k and v into the pool, attend causally.

        q, out (rows, heads * d_head); k, v (rows, kv_heads * d_head); angles as made by rope_angles. q and k may be
        overwritten. Query head h reads KV head h // (heads / kv_heads). Softmax over fixed blocks of 64 positions,
        combined in ascending order within stretches of 256, and those in ascending order; what a row does not see
        contributes nothing at all.
        """

    def add_norm(self, name: str, x: Slab, y: Slab, norm: RmsNorm) -> BoundOp:
        """x += norm(y); both (rows, width)."""

    def mixture(
        self,
        name: str,
        x: Slab,
        norm: RmsNorm,
        scores: Slab,
        experts: Experts,
        spec: MixtureSpec,
        *,
        shared: SwitchedBranch | None = None,
    ) -> BoundOp:
        """x += the weighted outputs of each row's experts for norm(x); x (rows, d_model), scores (rows, n_experts).

        For ranks 0, 1, ... n_used - 1, in this order: x = fma(weight of the rank, output of its expert, x). An
        expert's products are those of `linear`, whichever rows share it: grouping rows by expert changes no bit. At the
        end, with `shared`: x = fma(1 / (1 + e^-switch), y, x), the sigmoid computed as the softmax of (switch, 0).
        """

    def head(self, name: str, x: Slab, norm: RmsNorm, weight: Weight, out: Slab) -> BoundOp:
        """out[i] = norm(x[row of the i-th wanted logits]) @ weight.T; weight (vocab, d_model), out (rows, vocab)."""

    def bind_pool(self, pool: KvPool) -> None:
        """Name the pool that attention ops bound after this read and write. Once per backend instance."""

    def run(self, tape: Sequence[BoundOp], batch: Batch) -> None:
        """Run the ops in order over all rows of `batch`. Raises ShapeError for more rows than max_rows."""


class ExpertReader(Protocol):
    """Experts that a backend reads from files when a pass needs them."""

    def stats(self) -> ExpertStats:
        """What was done so far."""

    def uses(self) -> list[NDArray[np.uint64]]:
        """How many passes needed each expert, layer by layer."""

    def fill(self) -> None:
        """Begin to read the experts that memory holds from the start. Without it, the first pass begins that."""

    def settle(self) -> None:
        """Wait until nothing is being read."""

    def pilot(self, name: str, x: Slab, norm: RmsNorm, router: Projection, spec: MixtureSpec) -> BoundOp:
        """Begin to read the experts that a later layer's router would choose for x as it is, in passes of few rows.

        `spec` is that layer's. Changes nothing but router.out (rows, n_experts). Bind it before that layer's mixture.
        """


@runtime_checkable
class StreamsExperts(Protocol):
    """What a backend has besides if mixtures need not have all their experts in memory."""

    def bind_experts(self, catalog: Catalog, plan: Planner, options: StreamOptions) -> ExpertReader:
        """Have mixtures bound after this read their experts from files; `plan` says how many are in memory, and which,
        given what one of each layer takes there. Raises ModelFileError, CapacityError and what `plan` raises."""


@runtime_checkable
class LeavesOutExperts(Protocol):
    """What a backend has besides if a `MixtureSpec` of it may have a `top_p` below 1."""

    def expert_uses(self) -> tuple[int, int]:
        """Of the experts that rows of mixtures chose so far: how many were used, and how many were left out."""
