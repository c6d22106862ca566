"""Attention, rotation and cache writes of every tier equal the scalar oracle's, bit for bit, over ragged spans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.formats import F32
from fucina.core.nativelib import Native, open_native
from fucina.ops.batch import Batch, Span
from fucina.ops.native import NativeOps
from fucina.ops.seam import AttentionSpec, RmsNorm, RopeStyle
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.weights import Weight

native = open_native()
if not isinstance(native, Native):
    pytest.skip("the extension is not built", allow_module_level=True)

TIERS = [name for name, runs in native.module.tiers() if runs and name != "scalar"]
MAX_ROWS = 96


@dataclass(frozen=True)
class Case:
    heads: int = 4
    kv_heads: int = 2
    d_head: int = 32
    d_rotary: int = 32
    style: RopeStyle = "halves"
    window: int | None = None
    kv_format: str = "f16"
    norms: bool = False


CASES = {
    "plain": Case(),
    "interleaved, partly rotated": Case(style="interleaved", d_rotary=24),
    "halves, odd pairs": Case(d_head=24, d_rotary=20),
    "wide heads": Case(heads=4, kv_heads=1, d_head=136, d_rotary=136),
    "many heads to one": Case(heads=40, kv_heads=1, d_head=8, d_rotary=8),
    "window": Case(window=37, norms=True),
    "window of one": Case(window=1),
    "f32": Case(kv_format="f32", norms=True),
    "q8_0": Case(kv_format="q8_0", d_head=64, d_rotary=64, norms=True),
}


class OneLayer:
    """An attention op of one tier over a pool whose every byte starts as NaN: what is not visible must not matter."""

    def __init__(self, tier: str, threads: int, case: Case) -> None:
        assert isinstance(native, Native)
        self.ops = NativeOps(native.module, max_rows=MAX_ROWS, threads=threads, tier=tier)
        geometry = KvGeometry((LayerGeometry(3, 32), LayerGeometry(case.kv_heads, case.d_head)), case.kv_format)
        self.pool = KvPool(geometry, 8)
        np.frombuffer(self.pool.memory, np.uint8)[:] = 0xFF
        self.ops.bind_pool(self.pool)
        rng = np.random.default_rng(3)
        weights = [rng.normal(1, 0.2, case.d_head).astype(np.float32) for _ in range(2)]
        q_norm, k_norm = (RmsNorm(w, 1e-6) if case.norms else None for w in weights)
        spec = AttentionSpec(
            layer=1,
            heads=case.heads,
            kv_heads=case.kv_heads,
            d_head=case.d_head,
            d_rotary=case.d_rotary,
            rope_style=case.style,
            scale=case.d_head**-0.5,
            window=case.window,
            q_norm=q_norm,
            k_norm=k_norm,
        )
        self.q, self.out = (self.ops.slab(case.heads * case.d_head) for _ in range(2))
        self.k, self.v = (self.ops.slab(case.kv_heads * case.d_head) for _ in range(2))
        angles = self.ops.slab(case.d_rotary)
        table = Weight("t", F32, (1, 8), np.zeros(32, np.uint8))
        inv_freq = 10_000.0 ** (-np.arange(0, case.d_rotary, 2) / case.d_rotary)
        self.tape = (
            self.ops.embed("embed", table, self.ops.slab(8)),
            self.ops.rope_angles("angles", inv_freq, angles),
            self.ops.attention("attention", spec, self.q, self.k, self.v, angles, self.out),
        )

    def run(self, spans: tuple[Span, ...], inputs: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        rows = sum(len(span.tokens) for span in spans)
        for slab, values in zip((self.q, self.k, self.v), inputs, strict=True):
            slab.array(rows)[:] = values
        self.ops.run(self.tape, Batch(spans))
        return self.out.array(rows).copy()


def passes() -> list[tuple[Span, ...]]:
    """Prefill, mixed and decode passes of two sequences over blocks 0-3 and 4-7, out of order."""
    first, second = [2, 0, 3, 1], [5, 4, 7, 6]
    zeros = [0] * MAX_ROWS
    return [
        (Span(zeros[:70], 0, first, 0),),
        (Span(zeros[:1], 70, first, 0), Span(zeros[:63], 0, second, 0)),
        (Span(zeros[:1], 63, second, 0), Span(zeros[:1], 71, first, 0)),
        (Span(zeros[:5], 64, second, 0), Span(zeros[:60], 72, first, 0)),
        (Span(zeros[:1], 132, first, 0),),
    ]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("tier", TIERS)
def test_equals_scalar(tier: str, case: Case, threads: int) -> None:
    oracle, fast = OneLayer("scalar", 1, case), OneLayer(tier, threads, case)
    rng = np.random.default_rng(4)
    for spans in passes():
        rows = sum(len(span.tokens) for span in spans)
        widths = (case.heads * case.d_head, case.kv_heads * case.d_head, case.kv_heads * case.d_head)
        inputs = [rng.normal(0, 1.5, (rows, width)).astype(np.float32) for width in widths]
        expected, got = oracle.run(spans, inputs), fast.run(spans, inputs)
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))
    assert bytes(fast.pool.memory) == bytes(oracle.pool.memory)


@pytest.mark.parametrize("tier", ["scalar", *TIERS])
def test_agrees_with_softmax_by_definition(tier: str) -> None:
    case = Case(window=50)
    layer = OneLayer(tier, 2, case)
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(0, 1, (90, heads, 32)).astype(np.float32) for heads in (4, 2, 2))
    got = layer.run((Span([0] * 90, 0, [0, 1], 0),), [a.reshape(90, -1) for a in (q, k, v)])
    freq = 10_000.0 ** (-np.arange(0, 32, 2) / 32)
    angle = np.arange(90)[:, None, None] * freq
    turned = [
        np.concatenate(
            [
                a[..., :16] * np.cos(angle) - a[..., 16:] * np.sin(angle),
                a[..., :16] * np.sin(angle) + a[..., 16:] * np.cos(angle),
            ],
            -1,
        )
        for a in (q.astype(np.float64), k.astype(np.float64))
    ]
    keys, values = turned[1].astype(np.float16).astype(np.float64), v.astype(np.float16).astype(np.float64)
    for row in range(90):
        first = max(0, row + 1 - 50)
        for head in range(4):
            scores = keys[first : row + 1, head // 2] @ turned[0][row, head] / np.sqrt(32)
            p = np.exp(scores - scores.max())
            expected = p @ values[first : row + 1, head // 2] / p.sum()
            # f32 sums of at most 64 terms, and keys that may round to the neighboring f16
            np.testing.assert_allclose(got[row].reshape(4, 32)[head], expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("tier", ["scalar", *TIERS])
def test_add_norm_equals_definition(tier: str) -> None:
    assert isinstance(native, Native)
    ops = NativeOps(native.module, max_rows=8, threads=2, tier=tier)
    ops.bind_pool(KvPool(KvGeometry((LayerGeometry(1, 8),)), 1))
    table = Weight("t", F32, (1, 8), np.zeros(32, np.uint8))
    rng = np.random.default_rng(6)
    results = {}
    for width in (8, 24, 640):
        x, y = (rng.normal(0, 2, (5, width)).astype(np.float32) for _ in range(2))
        weight = rng.normal(1, 0.1, width).astype(np.float32)
        xs, ys = ops.slab(width), ops.slab(width)
        op = ops.add_norm("op", xs, ys, RmsNorm(weight, 1e-6))
        xs.array(5)[:], ys.array(5)[:] = x, y
        ops.run((ops.embed("e", table, ops.slab(8)), op), Batch((Span([0] * 5, 0, [0], 0),)))
        results[width] = xs.array(5).copy()
        wide = y.astype(np.float64)
        expected = x + wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * weight
        np.testing.assert_allclose(results[width], expected, rtol=2e-6, atol=2e-6)  # one f32 reduction
