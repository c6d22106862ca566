"""Attention beyond one stretch of 256 positions: every tier equals the oracle, and softmax by definition."""

from __future__ import annotations

import numpy as np
import pytest

from fucina.core.formats import F32
from fucina.core.nativelib import Native, open_native
from fucina.ops.batch import Batch, Span
from fucina.ops.native import NativeOps
from fucina.ops.seam import AttentionSpec
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.weights import Weight

native = open_native()
if not isinstance(native, Native):
    pytest.skip("the extension is not built", allow_module_level=True)

TIERS = [name for name, runs in native.module.tiers() if runs]
POSITIONS, HEAD = 800, 16
#: From 1,024 positions on, threads share out the stretches of a few rows.
LONG = 1300


class OneLayer:
    """One layer's attention of some heads of one query each, with a cache of its own."""

    def __init__(self, tier: str, threads: int, positions: int, window: int | None, heads: int = 1) -> None:
        assert isinstance(native, Native)
        self.ops = NativeOps(native.module, max_rows=positions, threads=threads, tier=tier)
        self.blocks = list(range((positions + 63) // 64 - 1, -1, -1))
        self.ops.bind_pool(KvPool(KvGeometry((LayerGeometry(heads, HEAD),)), len(self.blocks)))
        self.slabs = [self.ops.slab(heads * HEAD) for _ in range(4)]
        angles = self.ops.slab(8)
        spec = AttentionSpec(
            layer=0,
            heads=heads,
            kv_heads=heads,
            d_head=HEAD,
            d_rotary=8,
            rope_style="halves",
            scale=0.25,
            window=window,
        )
        self.tape = (
            self.ops.embed("embed", Weight("t", F32, (1, 8), np.zeros(32, np.uint8)), self.ops.slab(8)),
            self.ops.rope_angles("angles", np.zeros(4), angles),
            self.ops.attention("attention", spec, *self.slabs[:3], angles, self.slabs[3]),
        )

    def attend(self, rows: tuple[np.ndarray, ...], start: int) -> np.ndarray:
        """Output bits of rows of q, k and v from position `start` on."""
        n = len(rows[0])
        for slab, values in zip(self.slabs, rows, strict=False):
            slab.array(n)[:] = values
        self.ops.run(self.tape, Batch((Span([0] * n, start, self.blocks, 0),)))
        return self.slabs[3].array(n).view(np.uint32).copy()


@pytest.mark.parametrize("window", [None, 500])
def test_stretches(window: int | None) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(0, 1.3, (POSITIONS, HEAD)).astype(np.float32) for _ in range(3))
    rows: dict[str, np.ndarray] = {}
    for tier in TIERS:
        rows[tier] = OneLayer(tier, 2, POSITIONS, window).attend((q, k, v), 0).view(np.float32)
        np.testing.assert_array_equal(rows[tier].view(np.uint32), rows["scalar"].view(np.uint32))
    keys, values = k.astype(np.float16).astype(np.float64), v.astype(np.float16).astype(np.float64)
    for row in (0, 63, 64, 255, 256, 257, 640, 767, 768, 799):
        first = 0 if window is None else max(0, row + 1 - window)
        scores = keys[first : row + 1] @ q[row].astype(np.float64) * 0.25
        p = np.exp(scores - scores.max())
        expected = p @ values[first : row + 1] / p.sum()
        np.testing.assert_allclose(rows["scalar"][row], expected, rtol=0, atol=2e-6)  # f32 sums of 800 terms


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("heads", "window"), [(1, None), (1, 700), (3, None), (4, 700)])
def test_threads_share_the_heads_and_stretches_of_a_few_rows(tier: str, heads: int, window: int | None) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(0, 1.3, (LONG, heads * HEAD)).astype(np.float32) for _ in range(3))
    expected = OneLayer("baseline", 1, LONG, window, heads).attend((q, k, v), 0)
    for threads in (1, 2, 3):
        layer = OneLayer(tier, threads, LONG, window, heads)
        layer.attend((q, k, v), 0)
        for begin, end in ((900, 901), (LONG - 1, LONG), (LONG - 5, LONG)):
            few = layer.attend((q[begin:end], k[begin:end], v[begin:end]), begin)
            np.testing.assert_array_equal(few, expected[begin:end])
