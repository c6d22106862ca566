"""Every tier's products equal the scalar oracle's, bit for bit, for every format, over ragged shapes and rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.formats import SUPPORTED, Format
from fucina.core.nativelib import Native, open_native
from fucina.ops.batch import Batch, Span
from fucina.ops.native import NativeOps
from fucina.ops.seam import Gate, Projection, RmsNorm
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.weights import Weight

native = open_native()
if not isinstance(native, Native):
    pytest.skip("the extension is not built", allow_module_level=True)

TIERS = [name for name, runs in native.module.tiers() if runs and name != "scalar"]
ROWS = [1, 2, 3, 4, 5, 7, 9, 17, 33, 64, 65, 67]


def random_weight(weight_format: Format, d_out: int, d_in: int, seed: int) -> Weight:
    """Random blocks whose scales are ordinary numbers: any byte pattern is a valid quant, but not an ordinary scale."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(
        0, 256, (d_out * d_in // weight_format.block_weights, weight_format.block_bytes), dtype=np.uint8
    )
    scale = lambda n: rng.normal(0, 0.02, (n, 1)).astype(np.float16).view(np.uint8)  # noqa: E731
    if weight_format.name == "F32":
        blocks = rng.normal(0, 1, (len(blocks), 1)).astype(np.float32).view(np.uint8)
    elif weight_format.name == "F16":
        blocks = rng.normal(0, 1, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    elif weight_format.name == "BF16":
        blocks = (
            (rng.normal(0, 1, (len(blocks), 1)).astype(np.float32).view(np.uint32) >> 16)
            .astype(np.uint16)
            .view(np.uint8)
        )
    elif weight_format.name == "MXFP4":
        blocks[:, 0] = rng.integers(117, 124, len(blocks))
    else:
        at = {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208}.get(weight_format.name, 0)
        blocks[:, at : at + 2] = scale(len(blocks))
        if weight_format.name in ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"):
            blocks[:, at + 2 : at + 4] = scale(len(blocks))
    return Weight("w", weight_format, (d_out, d_in), np.ascontiguousarray(blocks).reshape(-1))


def open_tier(tier: str, threads: int = 1, max_rows: int = 80, repack: bool = True) -> NativeOps:
    assert isinstance(native, Native)
    ops = NativeOps(native.module, max_rows=max_rows, threads=threads, tier=tier, repack=repack)
    ops.bind_pool(KvPool(KvGeometry((LayerGeometry(1, 8),)), 4))
    return ops


def product(
    ops: NativeOps, weight: Weight, x: NDArray[np.float32], width: int, **kwargs: object
) -> NDArray[np.float32]:
    table = Weight("t", SUPPORTED[0], (1, 8), np.zeros(32, np.uint8))
    embed = ops.embed("embed", table, ops.slab(8))
    source, out = ops.slab(weight.d_in), ops.slab(width)
    bias = np.linspace(-1, 1, weight.d_out, dtype=np.float32) if kwargs.pop("bias", False) else None
    accumulate = bool(kwargs.pop("accumulate", False))
    norm = kwargs.pop("norm", None)
    gate = kwargs.pop("gate", None)
    if gate is not None:
        up, activation = gate  # type: ignore[misc]
        slab = ops.slab(weight.d_in)
        slab.array(len(x))[:] = up
        gate = Gate(slab, activation)
    op = ops.linear("op", source, [Projection(weight, out, bias, accumulate)], norm=norm, gate=gate)  # type: ignore[arg-type]
    source.array(len(x))[:] = x
    out.array(len(x))[:] = 0.5
    ops.run((embed, op), Batch((Span([0] * len(x), 0, [0, 1, 2, 3], 0),)))
    return out.array(len(x)).copy()


@pytest.mark.parametrize("weight_format", SUPPORTED.values(), ids=lambda f: f.name)
@pytest.mark.parametrize("tier", TIERS)
def test_equals_scalar(tier: str, weight_format: Format) -> None:
    d_in = 512 if weight_format.block_weights == 256 else 96
    for d_out in (8, 40, 104):
        weight = random_weight(weight_format, d_out, d_in, seed=d_out)
        x = np.random.default_rng(1).normal(0, 1, (max(ROWS), d_in)).astype(np.float32)
        x[0, :32] = 0
        oracle = product(open_tier("scalar"), weight, x, d_out)
        for rows in ROWS:
            fast = product(open_tier(tier, threads=2), weight, x[:rows], d_out)
            np.testing.assert_array_equal(fast.view(np.uint32), oracle[:rows].view(np.uint32))


@pytest.mark.parametrize("weight_format", SUPPORTED.values(), ids=lambda f: f.name)
@pytest.mark.parametrize("tier", TIERS)
def test_without_repacking_equals_scalar(tier: str, weight_format: Format) -> None:
    assert isinstance(native, Native)
    weight = random_weight(weight_format, 21, 512, seed=4)
    backend = native.module.Backend(max_rows=1, threads=1, tier=tier, repack=False)
    bound = backend.weight(weight.data, weight_format.type_id, 512, 21)
    assert bound.reads_raw
    assert bound.n_bytes == weight.data.nbytes
    odd_width = {1: 40, 32: 160, 256: 768}[weight_format.block_weights]
    for d_in, d_out in ((512, 21), (odd_width, 1), (odd_width, 43)):
        weight = random_weight(weight_format, d_out, d_in, seed=4)
        x = np.random.default_rng(5).normal(0, 1, (19, d_in)).astype(np.float32)
        oracle = product(open_tier("scalar"), weight, x, d_out, bias=True)
        ops = open_tier(tier, threads=2, repack=False)
        for rows in (*range(1, 18), 19):
            got = product(ops, weight, x[:rows], d_out, bias=True)
            np.testing.assert_array_equal(got.view(np.uint32), oracle[:rows].view(np.uint32))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("accumulate", [False, True])
def test_without_repacking_tiles_of_many_sizes_share_a_room(tier: str, accumulate: bool) -> None:
    """A piece of work goes from one weight's tiles to the next one's, which are larger or smaller."""
    names = {f.name: f for f in SUPPORTED.values()}
    shapes = (("Q2_K", 1603), ("F32", 1031), ("Q8_0", 301), ("Q6_K", 9))
    weights = [random_weight(names[name], d_out, 512, seed=d_out) for name, d_out in shapes]
    x = np.random.default_rng(6).normal(0, 1, (7, 512)).astype(np.float32)
    for rows in (1, 7):
        found = []
        for ops in (open_tier(tier), open_tier(tier, threads=2, repack=False)):
            table = Weight("t", SUPPORTED[0], (1, 8), np.zeros(32, np.uint8))
            embed, source = ops.embed("embed", table, ops.slab(8)), ops.slab(512)
            outs = [ops.slab(w.d_out) for w in weights]
            bias = [np.linspace(-1, 1, w.d_out, dtype=np.float32) for w in weights]
            projections = [Projection(w, out, b, accumulate) for w, out, b in zip(weights, outs, bias, strict=True)]
            op = ops.linear("op", source, projections)
            source.array(rows)[:] = x[:rows]
            for out in outs:
                out.array(rows)[:] = 0.5
            ops.run((embed, op), Batch((Span([0] * rows, 0, [0], 0),)))
            found.append(np.concatenate([out.array(rows).ravel() for out in outs]))
        np.testing.assert_array_equal(found[1].view(np.uint32), found[0].view(np.uint32))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("rows", [1, 6])
def test_prologues_and_epilogues_equal_scalar(tier: str, rows: int) -> None:
    rng = np.random.default_rng(2)
    weight = random_weight(SUPPORTED[3], 24, 160, seed=3)
    x = rng.normal(0, 3, (rows, 160)).astype(np.float32)
    up = rng.normal(0, 1, (rows, 160)).astype(np.float32)
    norm = RmsNorm(rng.normal(1, 0.1, 160).astype(np.float32), 1e-5)
    for case in (
        {"bias": True},
        {"accumulate": True},
        {"bias": True, "accumulate": True},
        {"norm": norm},
        {"gate": (up, "silu")},
        {"gate": (up, "gelu")},
    ):
        oracle = product(open_tier("scalar"), weight, x, 24, **dict(case))
        fast = product(open_tier(tier, threads=2), weight, x, 24, **dict(case))
        np.testing.assert_array_equal(fast.view(np.uint32), oracle.view(np.uint32))
