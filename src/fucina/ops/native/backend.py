"""The verbs on the compiled kernels: check, bind handles, run a whole tape in one call without the GIL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

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
from fucina.ops.native.streaming import NativeExperts
from fucina.ops.seam import (
    AttentionSpec,
    BoundOp,
    Experts,
    Gate,
    MixtureSpec,
    Planner,
    Projection,
    RmsNorm,
    Slab,
    SwitchedBranch,
)
from fucina.storage.experts.catalog import Catalog
from fucina.storage.experts.options import StreamOptions
from fucina.storage.kv.pool import KvPool
from fucina.storage.mapping import forget_pages
from fucina.storage.weights import Weight

#: Rows that are normalized, gated or quantized, and heads, come in whole vectors of eight f32 values.
_LANES = 8
#: Rows at experts that one pass can have: pieces that threads can share out.
_MOST_ROWS_AT_EXPERTS = 2**20 - 1
#: KV formats by the number that the extension knows them by.
_KV_FORMATS = {"f16": 0, "q8_0": 1, "f32": 2}


def _require_lanes(name: str, width: int) -> None:
    if width % _LANES:
        raise ShapeError(f"{name}: width", expected=f"a multiple of {_LANES}", got=width)


def _bound(op: Any) -> BoundOp:
    """What the untyped extension gives, under its name in the seam."""
    return cast(BoundOp, op)


class NativeOps:
    """A backend over `fucina._native`: one instruction tier, one thread count (see ops/seam.py for the verbs)."""

    def __init__(
        self, module: ModuleType, *, max_rows: int, threads: int, tier: str | None, repack: bool = True
    ) -> None:
        """With `repack`, weights are copied into the tiles of the tier; without, they are read where they lie, slower.

        Raises ConfigError for a tier that this build does not have or this processor cannot run.
        """
        self._module = module
        try:
            self._backend = module.Backend(max_rows, threads, tier or "", repack)
        except ValueError as error:
            raise ConfigError("instruction tier", got=tier, expected=str(error)) from None
        self.name = f"native/{self._backend.tier}"
        self.max_rows = max_rows
        self.repack = repack
        self._borrowed: list[object] = []  # what bound ops read without owning
        self._pool: KvPool | None = None
        self._resident: Any = module.ResidentExperts()
        self._streamed: NativeExperts | None = None
        #: Of the experts that rows chose: how many were used, and how many left out.
        self.expert_uses: Callable[[], tuple[int, int]] = self._backend.expert_uses
        self._tape: Sequence[BoundOp] = ()  # the one run last,
        self._native_tape: Any = None  # and what the extension made of it

    def slab(self, width: int) -> Slab:
        """A new buffer (max_rows, width) f32."""
        if width < 1:
            raise ShapeError("slab width", expected="at least 1", got=width)
        return cast(Slab, self._backend.slab(width))

    def embed(self, name: str, table: Weight, out: Slab, *, scale: float = 1.0) -> BoundOp:
        """Bind the look-up of token rows."""
        check_table(name, table, out.width)
        self._borrowed.append(table)
        return _bound(self._backend.embed(name, table.data, table.format.type_id, table.shape[0], scale, out))

    def rope_angles(self, name: str, inv_freq: NDArray[np.float64], out: Slab, *, magnitude: float = 1.0) -> BoundOp:
        """Bind the cosines and sines of every row's position."""
        require_equal(f"{name}: frequencies", inv_freq.shape, (out.width // 2,))
        return _bound(self._backend.angles(name, np.ascontiguousarray(inv_freq, np.float64), magnitude, out))

    def linear(
        self,
        name: str,
        x: Slab,
        projections: Sequence[Projection],
        *,
        norm: RmsNorm | None = None,
        gate: Gate | None = None,
    ) -> BoundOp:
        """Bind several products of one input."""
        check_linear(name, x, tuple(projections), norm, gate)
        _require_lanes(name, x.width)
        native_gate = None if gate is None else self._module.Gate(gate.up, gate.activation == "gelu")
        bound = [self._projection(p) for p in projections]
        return _bound(self._backend.linear(name, x, self._norm(norm), native_gate, bound, False))

    def attention(self, name: str, spec: AttentionSpec, q: Slab, k: Slab, v: Slab, angles: Slab, out: Slab) -> BoundOp:
        """Bind one layer's attention over the bound pool."""
        check_attention(name, spec, q, k, v, angles, out)
        _require_lanes(name, spec.d_head)
        if self._pool is None:
            raise ShapeError(f"{name}: KV pool", expected="bind_pool first", got="none")
        geometry = self._pool.geometry
        layer = geometry.layers[spec.layer]
        require_equal(f"{name}: heads of the pool", (layer.kv_heads, layer.d_head), (spec.kv_heads, spec.d_head))
        k_offset = geometry.layer_offset(spec.layer)
        shape = self._module.AttentionShape(
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            d_head=spec.d_head,
            d_rotary=spec.d_rotary,
            halves=spec.rope_style == "halves",
            scale=spec.scale,
            window=spec.window or 0,
        )
        return _bound(
            self._backend.attention(
                name,
                shape,
                k_offset=k_offset,
                v_offset=k_offset + geometry.layer_bytes(spec.layer) // 2,
                head_bytes=geometry.head_bytes(spec.d_head),
                q_norm=self._norm(spec.q_norm),
                k_norm=self._norm(spec.k_norm),
                q=q,
                k=k,
                v=v,
                angles=angles,
                out=out,
            )
        )

    def add_norm(self, name: str, x: Slab, y: Slab, norm: RmsNorm) -> BoundOp:
        """Bind x += norm(y)."""
        require_equal(f"{name}: widths", y.width, x.width)
        _require_lanes(name, x.width)
        check_norm(name, norm, x.width)
        return _bound(self._backend.add_norm(name, x, y, self._norm(norm)))

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
        """Bind the experts that the scores choose: all of them in memory, unless `bind_experts` was called."""
        check_mixture(name, x, norm, scores, experts, spec, shared)
        _require_lanes(name, x.width)
        _require_lanes(name, experts.down.d_in)
        most = _MOST_ROWS_AT_EXPERTS // self.max_rows
        if spec.n_used > most:
            raise ShapeError(
                f"{name}: experts used", expected=f"at most {most} with {self.max_rows} rows", got=spec.n_used
            )
        source, layer = self._expert_source(experts, spec.layer)
        return _bound(
            self._backend.mixture(
                name,
                x,
                self._norm(norm),
                scores,
                source=source,
                layer=layer,
                n_used=spec.n_used,
                renormalize=spec.renormalize,
                scale=spec.scale,
                top_p=spec.top_p,
                gelu=spec.activation == "gelu",
                shared=None if shared is None else shared.y,
                switch=None if shared is None else shared.switch,
            )
        )

    def bind_experts(self, catalog: Catalog, plan: Planner, options: StreamOptions) -> NativeExperts:
        """Have mixtures bound after this read their experts from files.

        Where those are read past the page cache, weights bound after this are in small pages: the disk is what passes
        wait for then, not the processor's table of pages, and some systems hand them out many times as fast.
        """
        if options.direct:
            self._backend.use_small_pages()
        self._streamed = NativeExperts(
            self._module,
            self._backend.tier,
            self._bind_pilot,
            self._backend.foresight,
            tiles=self.repack,
            catalog=catalog,
            plan=plan,
            options=options,
        )
        return self._streamed

    def head(self, name: str, x: Slab, norm: RmsNorm, weight: Weight, out: Slab) -> BoundOp:
        """Bind the logits of the rows that want them."""
        projection = Projection(weight, out)
        check_linear(name, x, (projection,), norm, None)
        _require_lanes(name, x.width)
        return _bound(self._backend.linear(name, x, self._norm(norm), None, [self._projection(projection)], True))

    def bind_pool(self, pool: KvPool) -> None:
        """Name the pool that attention ops bound after this read and write."""
        self._pool = pool
        memory = np.frombuffer(pool.memory, np.uint8)
        self._borrowed.append(memory)
        self._backend.bind_pool(memory, pool.geometry.block_bytes, _KV_FORMATS[pool.geometry.format])

    def run(self, tape: Sequence[BoundOp], batch: Batch) -> None:
        """Run the ops in order over all rows of `batch`, in one call, without the GIL."""
        if tape is not self._tape:
            self._take_tape(tape)
        try:
            self._backend.run(self._native_tape, batch.spans)
        except self._module.ReadFailed as error:
            assert self._streamed is not None, "whoever else reads files"
            raise self._streamed.failure(str(error)) from None
        except ValueError as error:
            raise ShapeError("batch", expected="rows, tokens and blocks in bounds", got=str(error)) from None

    def profile(self, tape: Sequence[BoundOp], batch: Batch) -> list[tuple[str, int]]:
        """Run like `run`; give every op's name and the nanoseconds it took, waiting for the slowest thread included."""
        if tape is not self._tape:
            self._take_tape(tape)
        spent = self._backend.profile(self._native_tape, batch.spans)
        return [(op.name, took) for op, took in zip(tape, spent, strict=True)]

    def _take_tape(self, tape: Sequence[BoundOp]) -> None:
        self._native_tape = self._module.Tape(list(tape))
        self._tape = tape

    def _bind_pilot(
        self, name: str, x: Slab, norm: RmsNorm, router: Projection, spec: MixtureSpec, source: Any
    ) -> BoundOp:
        check_linear(name, x, (router,), norm, None)
        slabs = x, self._norm(norm), self._projection(router)
        return _bound(self._backend.pilot(name, *slabs, source, spec.layer, spec.n_used, spec.top_p))

    def _expert_source(self, experts: Experts, layer: int) -> tuple[Any, int]:
        """Where a layer's experts come from, and the number that the layer has there."""
        if self._streamed is not None:
            return self._streamed.source, layer
        stacks = [[self._weight(part) for part in stack.parts()] for stack in (experts.gate, experts.up, experts.down)]
        return self._resident, self._resident.add_layer(*stacks)

    def _norm(self, norm: RmsNorm | None) -> Any:
        return None if norm is None else self._module.Norm(np.ascontiguousarray(norm.weight, np.float32), norm.eps)

    def _projection(self, projection: Projection) -> Any:
        bias = None if projection.bias is None else np.ascontiguousarray(projection.bias, np.float32)
        return self._module.Projection(self._weight(projection.weight), projection.out, bias, projection.accumulate)

    def _weight(self, weight: Weight) -> Any:
        packed = self._backend.weight(weight.data, weight.format.type_id, weight.d_in, weight.d_out)
        if packed.reads_raw:
            self._borrowed.append(weight)
        else:
            forget_pages(weight.data)
        return packed
