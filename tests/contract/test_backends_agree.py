"""Every op on the native backend agrees with the NumPy reference, within the tolerance that the op states."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.formats import F32, SUPPORTED, Format
from fucina.core.nativelib import Absent, open_native
from fucina.ops.batch import Batch, Span
from fucina.ops.choose import open_ops
from fucina.ops.reference import tolerance
from fucina.ops.reference.tolerance import Tolerance
from fucina.ops.seam import AttentionSpec, BoundOp, Gate, Ops, Projection, RmsNorm, RopeStyle, Slab
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.weights import Weight
from fucina.testing.quantize import quantize

F32s = NDArray[np.float32]
ROWS, N_TOKENS = 70, 50
FORMATS = pytest.mark.parametrize("fmt", SUPPORTED.values(), ids=lambda f: f.name)

pytestmark = pytest.mark.skipif(isinstance(open_native(), Absent), reason="the compiled extension is not built")


def _normal(name: str, *shape: int) -> F32s:
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, dtype=np.float32)


def _weight(name: str, d_out: int, d_in: int, fmt: Format) -> Weight:
    array = _normal(name, d_out, d_in) / np.float32(np.sqrt(d_in))
    return Weight(name, fmt, array.shape, quantize(array, fmt).view(np.uint8).reshape(-1))


def _norm(width: int) -> RmsNorm:
    return RmsNorm(1 + _normal("norm", width) / 10, 1e-6)


class Bench:
    """A backend with a pool and a table of 50 tokens, so that a pass may name both; slabs are filled alike on each."""

    def __init__(self, backend: str, kv_format: str) -> None:
        self.ops: Ops = open_ops(max_rows=ROWS, threads=1, backend=backend)
        self.ops.bind_pool(KvPool(KvGeometry((LayerGeometry(1, 32), LayerGeometry(2, 64)), kv_format), 2))
        self.embed = self.ops.embed("embed", _weight("tokens", N_TOKENS, 32, F32), self.ops.slab(32))

    def slab(self, name: str, width: int) -> Slab:
        slab = self.ops.slab(width)
        slab.array(ROWS)[:] = _normal(name, ROWS, width)
        return slab


def _agree(
    bind: Callable[[Bench], tuple[list[BoundOp], Slab]],
    allowed: Tolerance,
    rows: int = ROWS,
    kv_format: str = "f16",
    **span: Any,
) -> None:
    """Run the same tape on both backends over `rows` rows of one sequence and compare the rows of its output."""
    tokens = [int(t) for t in np.random.default_rng(0).integers(0, N_TOKENS, rows)]
    batch = Batch((Span(tokens, span.get("start", 0), span.get("blocks", (1, 0)), span.get("n_logits", 0)),))
    outputs = []
    for backend in ("reference", "native"):
        bench = Bench(backend, kv_format)
        tape, out = bind(bench)
        bench.ops.run([bench.embed, *tape], batch)
        outputs.append(out.array(batch.n_logits or rows).copy())
    excess = allowed.excess(outputs[1], outputs[0])
    print(f"{excess:.2g} of what is allowed")
    assert excess <= 1, allowed.because


@FORMATS
def test_embed(fmt: Format) -> None:
    def bind(bench: Bench) -> tuple[list[BoundOp], Slab]:
        out = bench.slab("out", 512)
        return [bench.ops.embed("e", _weight("table", N_TOKENS, 512, fmt), out, scale=22.6)], out

    _agree(bind, tolerance.EMBED)


@pytest.mark.parametrize("magnitude", [1.0, 1.2])
def test_rope_angles(magnitude: float) -> None:
    def bind(bench: Bench) -> tuple[list[BoundOp], Slab]:
        out = bench.slab("out", 128)
        return [bench.ops.rope_angles("r", 1e6 ** -(np.arange(64) / 64), out, magnitude=magnitude)], out

    _agree(bind, tolerance.ROPE_ANGLES, start=100_000, blocks=(0,) * 1600)


@FORMATS
@pytest.mark.parametrize("rows", [1, 5, 70])
def test_linear(fmt: Format, rows: int) -> None:
    def bind(bench: Bench) -> tuple[list[BoundOp], Slab]:
        x, out, other = bench.slab("x", 512), bench.slab("out", 72), bench.slab("other", 40)
        bias = _normal("bias", 72)
        projections = [
            Projection(_weight("b", 40, 512, fmt), other),
            Projection(_weight("a", 72, 512, fmt), out, bias, accumulate=True),
        ]
        return [bench.ops.linear("l", x, projections)], out

    _agree(bind, tolerance.LINEAR, rows)


@FORMATS
@pytest.mark.parametrize("before", ["norm", "silu", "gelu"])
def test_linear_of_a_norm_or_gate(fmt: Format, before: str) -> None:
    def bind(bench: Bench) -> tuple[list[BoundOp], Slab]:
        x, up, out = bench.slab("x", 512), bench.slab("up", 512), bench.slab("out", 72)
        norm = _norm(512) if before == "norm" else None
        gate = Gate(up, before) if before != "norm" else None  # type: ignore[arg-type]
        projection = Projection(_weight("a", 72, 512, fmt), out)
        return [bench.ops.linear("l", x, [projection], norm=norm, gate=gate)], out

    _agree(bind, tolerance.LINEAR if fmt.block_weights == 1 else tolerance.LINEAR_OF_ROUNDED)


def _attention(style: RopeStyle, window: int | None, d_rotary: int, norm: RmsNorm | None) -> AttentionSpec:
    return AttentionSpec(
        layer=1,
        heads=6,
        kv_heads=2,
        d_head=64,
        d_rotary=d_rotary,
        rope_style=style,
        scale=0.125,
        window=window,
        q_norm=norm,
        k_norm=norm,
    )


ATTENTIONS = {
    "plain": _attention("halves", None, 64, None),
    "neighbors": _attention("interleaved", None, 64, None),
    "normed": _attention("halves", None, 64, _norm(64)),
    "windowed": _attention("halves", 9, 64, _norm(64)),
    "partly rotated": _attention("halves", 64, 32, None),
    "partly rotated neighbors": _attention("interleaved", 64, 32, None),
}


@pytest.mark.parametrize("kv_format", ["f16", "q8_0"])
@pytest.mark.parametrize("spec", ATTENTIONS.values(), ids=ATTENTIONS)
def test_attention(spec: AttentionSpec, kv_format: str) -> None:
    def bind(bench: Bench) -> tuple[list[BoundOp], Slab]:
        q, k, v = bench.slab("q", 384), bench.slab("k", 128), bench.slab("v", 128)
        angles, out = bench.slab("angles", spec.d_rotary), bench.slab("out", 384)
        inv_freq = 1e4 ** -(np.arange(spec.d_rotary // 2) * 2 / spec.d_rotary)
        return [
            bench.ops.rope_angles("r", inv_freq, angles),
            bench.ops.attention("a", spec, q, k, v, angles, out),
        ], out

    allowed = tolerance.ATTENTION if kv_format == "f16" else tolerance.ATTENTION_OF_EIGHT_BITS
    _agree(bind, allowed, kv_format=kv_format)


def test_add_norm() -> None:
    def bind(bench: Bench) -> tuple[list[BoundOp], Slab]:
        x, y = bench.slab("x", 640), bench.slab("y", 640)
        return [bench.ops.add_norm("a", x, y, _norm(640))], x

    _agree(bind, tolerance.ADD_NORM)


@FORMATS
def test_head(fmt: Format) -> None:
    def bind(bench: Bench) -> tuple[list[BoundOp], Slab]:
        x, out = bench.slab("x", 512), bench.slab("out", 100)
        return [bench.ops.head("h", x, _norm(512), _weight("head", 100, 512, fmt), out)], out

    _agree(bind, tolerance.LINEAR if fmt.block_weights == 1 else tolerance.LINEAR_OF_ROUNDED, n_logits=9)
