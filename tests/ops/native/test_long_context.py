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


class OneHead:
    """One layer's attention of one head, with a cache of its own."""

    def __init__(self, tier: str, threads: int, positions: int, window: int | None) -> None:
        assert isinstance(native, Native)
        self.ops = NativeOps(native.module, max_rows=positions, threads=threads, tier=tier)
        self.blocks = list(range((positions + 63) // 64 - 1, -1, -1))
        self.ops.bind_pool(KvPool(KvGeometry((LayerGeometry(1, HEAD),)), len(self.blocks)))
        self.slabs = [self.ops.slab(HEAD) for _ in range(4)]
        angles = self.ops.slab(8)
        spec = AttentionSpec(
            layer=0, heads=1, kv_heads=1, d_head=HEAD, d_rotary=8, rope_style="halves", scale=0.25, window=window
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
        rows[tier] = OneHead(tier, 2, POSITIONS, window).attend((q, k, v), 0).view(np.float32)
        np.testing.assert_array_equal(rows[tier].view(np.uint32), rows["scalar"].view(np.uint32))
    keys, values = k.astype(np.float16).astype(np.float64), v.astype(np.float16).astype(np.float64)
    for row in (0, 63, 64, 255, 256, 257, 640, 767, 768, 799):
        first = 0 if window is None else max(0, row + 1 - window)
        scores = keys[first : row + 1] @ q[row].astype(np.float64) * 0.25
        p = np.exp(scores - scores.max())
        expected = p @ values[first : row + 1] / p.sum()
        np.testing.assert_allclose(rows["scalar"][row], expected, rtol=0, atol=2e-6)  # f32 sums of 800 terms


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("window", [None, 700])
def test_threads_share_the_stretches_of_a_few_rows(tier: str, window: int | None) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(0, 1.3, (LONG, HEAD)).astype(np.float32) for _ in range(3))
    expected = OneHead("scalar", 1, LONG, window).attend((q, k, v), 0)
    for threads in (1, 2, 3):
        head = OneHead(tier, threads, LONG, window)
        head.attend((q, k, v), 0)
        for n in (1, 5):
            few = head.attend((q[-n:], k[-n:], v[-n:]), LONG - n)
            np.testing.assert_array_equal(few, expected[-n:])
