"""The verbs of ops/seam.py in NumPy: the specification in code, and the way to run without the extension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fucina.core.shapes import KV_BLOCK
from fucina.errors import ConfigError, ShapeError
from fucina.ops.batch import Batch
from fucina.ops.guards import (
    check_attention,
    check_linear,
    check_mixture,
    check_norm,
    check_table,
    require_equal,
)
from fucina.ops.reference.attention import AttentionOp
from fucina.ops.reference.cache import layer_cache
from fucina.ops.reference.matrix import Matrix
from fucina.ops.reference.mixture import ExpertUses, MixtureOp, bind_experts
from fucina.ops.reference.pointwise import AddNormOp, RopeAnglesOp
from fucina.ops.reference.products import BoundProjection, EmbedOp, HeadOp, LinearOp
from fucina.ops.reference.slab import ReferenceSlab, Row, own, rows_of
from fucina.ops.seam import (
    AttentionSpec,
    BoundOp,
    Experts,
    Gate,
    MixtureSpec,
    Projection,
    RmsNorm,
    Slab,
    SwitchedBranch,
)
from fucina.storage.kv.pool import KvPool
from fucina.storage.weights import Weight

_OPS = (EmbedOp, RopeAnglesOp, LinearOp, AttentionOp, AddNormOp, MixtureOp, HeadOp)


class ReferenceOp(Protocol):
    """What this backend's own ops have beyond a name."""

    @property
    def name(self) -> str:
        """As bound."""

    def run(self, rows: Sequence[Row]) -> None:
        """Compute every row of a pass."""


class ReferenceOps:
    """An Ops backend in NumPy. Every row is computed by itself, so the law of the seam holds by construction.

    Weights are kept dequantized once they were used, at four bytes each (see matrix.py).
    """

    name = "reference"

    def __init__(self, max_rows: int) -> None:
        if max_rows < 1:
            raise ConfigError("max_rows", got=max_rows, expected="at least 1")
        self.max_rows = max_rows
        self._pool: KvPool | None = None
        self._uses = ExpertUses()

    def slab(self, width: int) -> ReferenceSlab:
        """A new buffer (max_rows, width) f32. Raises ShapeError."""
        return ReferenceSlab(self.max_rows, width)

    def embed(self, name: str, table: Weight, out: Slab, *, scale: float = 1.0) -> EmbedOp:
        """Bind out[r] = table[token of row r] * scale; table (vocab, d_model). Raises ShapeError, UnsupportedFormat."""
        check_table(name, table, out.width)
        return EmbedOp(name, Matrix(table), own(out, name, table.d_in), scale)

    def rope_angles(
        self, name: str, inv_freq: NDArray[np.float64], out: Slab, *, magnitude: float = 1.0
    ) -> RopeAnglesOp:
        """Bind cosines and sines of positions; inv_freq (d_rotary / 2,) f64. Raises ShapeError."""
        return RopeAnglesOp(name, inv_freq, magnitude, own(out, name, 2 * len(inv_freq)))

    def linear(
        self,
        name: str,
        x: Slab,
        projections: Sequence[Projection],
        *,
        norm: RmsNorm | None = None,
        gate: Gate | None = None,
    ) -> LinearOp:
        """Bind several products of x, norm(x) or gate(x), (rows, d_in). Raises ShapeError, UnsupportedFormat."""
        check_linear(name, x, tuple(projections), norm, gate)
        bound = tuple(_bind_projection(name, projection) for projection in projections)
        up = None if gate is None else own(gate.up, name, x.width)
        return LinearOp(name, own(x, name, x.width), bound, norm, up, None if gate is None else gate.activation)

    def attention(
        self, name: str, spec: AttentionSpec, q: Slab, k: Slab, v: Slab, angles: Slab, out: Slab
    ) -> AttentionOp:
        """Bind one layer's attention; q, out (rows, heads * d_head), k, v (rows, kv_heads * d_head).

        Raises ShapeError.
        """
        check_attention(name, spec, q, k, v, angles, out)
        assert self._pool is not None, "bind_pool comes first"
        layer = self._pool.geometry.layers[spec.layer]
        require_equal(f"{name}: heads of the pool", (layer.kv_heads, layer.d_head), (spec.kv_heads, spec.d_head))
        wide, narrow = spec.heads * spec.d_head, spec.kv_heads * spec.d_head
        return AttentionOp(
            name,
            spec,
            layer_cache(self._pool, spec.layer),
            own(q, name, wide),
            own(k, name, narrow),
            own(v, name, narrow),
            own(angles, name, spec.d_rotary),
            own(out, name, wide),
        )

    def add_norm(self, name: str, x: Slab, y: Slab, norm: RmsNorm) -> AddNormOp:
        """Bind x += norm(y), both (rows, width). Raises ShapeError."""
        check_norm(name, norm, x.width)
        return AddNormOp(name, own(x, name, x.width), own(y, name, x.width), norm)

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
    ) -> MixtureOp:
        """Bind the experts that the scores choose; x (rows, d_model), scores (rows, n_experts).

        Raises ShapeError, UnsupportedFormat.
        """
        check_mixture(name, x, norm, scores, experts, spec, shared)
        slabs = own(x, name, x.width), own(scores, name, spec.n_experts)
        branch = None if shared is None else (own(shared.y, name, x.width), own(shared.switch, name, 1))
        return MixtureOp(name, *slabs, norm, bind_experts(experts), spec, branch, self._uses)

    def head(self, name: str, x: Slab, norm: RmsNorm, weight: Weight, out: Slab) -> HeadOp:
        """Bind the logits of the wanted rows; weight (vocab, d_model). Raises ShapeError, UnsupportedFormat."""
        check_linear(name, x, (Projection(weight, out),), norm, None)
        return HeadOp(name, own(x, name, weight.d_in), norm, Matrix(weight), own(out, name, weight.d_out))

    def bind_pool(self, pool: KvPool) -> None:
        """Name the pool that attention ops bound after this read and write."""
        assert self._pool is None, "a backend instance has one pool"
        self._pool = pool

    def expert_uses(self) -> tuple[int, int]:
        """Of the experts that rows chose: how many were used, and how many left out."""
        return self._uses.used, self._uses.left_out

    def run(self, tape: Sequence[BoundOp], batch: Batch) -> None:
        """Run the ops in order over all rows of `batch`. Raises ShapeError for rows out of bounds."""
        _check_batch(batch, self.max_rows, self._pool)
        rows = rows_of(batch)
        if rows:
            for op in tape:
                _own_op(op).run(rows)


def _own_op(op: BoundOp) -> ReferenceOp:
    assert isinstance(op, _OPS), "an op of another backend"
    return op


def _bind_projection(name: str, projection: Projection) -> BoundProjection:
    weight = projection.weight
    return BoundProjection(
        Matrix(weight), own(projection.out, name, weight.d_out), projection.bias, projection.accumulate
    )


def _check_batch(batch: Batch, max_rows: int, pool: KvPool | None) -> None:
    if batch.n_rows > max_rows:
        raise ShapeError("rows of a pass", expected=f"at most {max_rows}", got=batch.n_rows)
    for span in batch.spans:
        if not 0 <= span.n_logits <= len(span.tokens):
            raise ShapeError("rows of logits", expected=f"0 to {len(span.tokens)}", got=span.n_logits)
        if span.start < 0 or span.start + len(span.tokens) > len(span.blocks) * KV_BLOCK:
            end = span.start + len(span.tokens)
            raise ShapeError("positions of a span", expected=f"in {len(span.blocks)} blocks", got=(span.start, end))
        if pool is not None and not all(0 <= block < pool.capacity for block in span.blocks):
            raise ShapeError("blocks of a span", expected=f"0 to {pool.capacity - 1}", got=tuple(span.blocks))
