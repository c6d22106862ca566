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


@pytest.mark.parametrize("window", [None, 500])
def test_stretches(window: int | None) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(0, 1.3, (POSITIONS, HEAD)).astype(np.float32) for _ in range(3))
    rows: dict[str, np.ndarray] = {}
    for tier in TIERS:
        assert isinstance(native, Native)
        ops = NativeOps(native.module, max_rows=POSITIONS, threads=2, tier=tier)
        ops.bind_pool(KvPool(KvGeometry((LayerGeometry(1, HEAD),)), 13))
        slabs = [ops.slab(HEAD) for _ in range(4)]
        angles = ops.slab(8)
        spec = AttentionSpec(
            layer=0, heads=1, kv_heads=1, d_head=HEAD, d_rotary=8, rope_style="halves", scale=0.25, window=window
        )
        tape = (
            ops.embed("embed", Weight("t", F32, (1, 8), np.zeros(32, np.uint8)), ops.slab(8)),
            ops.rope_angles("angles", np.zeros(4), angles),
            ops.attention("attention", spec, slabs[0], slabs[1], slabs[2], angles, slabs[3]),
        )
        for slab, values in zip(slabs, (q, k, v), strict=False):
            slab.array(POSITIONS)[:] = values
        ops.run(tape, Batch((Span([0] * POSITIONS, 0, list(range(12, -1, -1)), 0),)))
        rows[tier] = slabs[3].array(POSITIONS).copy()
        np.testing.assert_array_equal(rows[tier].view(np.uint32), rows["scalar"].view(np.uint32))
    keys, values = k.astype(np.float16).astype(np.float64), v.astype(np.float16).astype(np.float64)
    for row in (0, 63, 64, 255, 256, 257, 640, 767, 768, 799):
        first = 0 if window is None else max(0, row + 1 - window)
        scores = keys[first : row + 1] @ q[row].astype(np.float64) * 0.25
        p = np.exp(scores - scores.max())
        expected = p @ values[first : row + 1] / p.sum()
        np.testing.assert_allclose(rows["scalar"][row], expected, rtol=0, atol=2e-6)  # f32 sums of 800 terms
