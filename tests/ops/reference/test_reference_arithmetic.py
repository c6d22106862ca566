"""The reference ops against the law's sentences, written down a second time as plain formulas."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from fucina.core.formats import F32, Q4_K, Q8_0, Format
from fucina.errors import ShapeError
from fucina.ops.batch import Batch, Span
from fucina.ops.reference import ReferenceOps
from fucina.ops.reference.dequant import dequantize
from fucina.ops.reference.quantize import quantize_blocks, round_trip
from fucina.ops.reference.rowwise import activate, rms_norm, rope_angles, rotate
from fucina.ops.seam import AttentionSpec, Gate, Projection, RmsNorm
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.weights import Weight
from fucina.testing.quantize import quantize

F32s = NDArray[np.float32]


def _weight(array: F32s, fmt: Format = F32) -> Weight:
    return Weight("w", fmt, array.shape, quantize(array, fmt).view(np.uint8).reshape(-1))


def _normal(seed: int, *shape: int) -> F32s:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _one_sequence(n_rows: int, n_logits: int = 0, start: int = 0, blocks: tuple[int, ...] = (0,)) -> Batch:
    return Batch((Span([0] * n_rows, start, blocks, n_logits),))


def test_activations_round_half_to_even() -> None:
    x = np.zeros(32, np.float32)
    x[:6] = [127, 0.5, 1.5, 2.5, -0.5, -1.5]
    integers, scales = quantize_blocks(x, 32)
    assert integers[0, :6].tolist() == [127, 0, 2, 2, 0, -2]
    assert scales.tolist() == [1.0]


def test_each_block_has_its_own_scale() -> None:
    x = np.concatenate([np.full(32, 254, np.float32), np.full(32, -12.7, np.float32), np.zeros(32, np.float32)])
    integers, scales = quantize_blocks(x, 32)
    assert integers[:, 0].tolist() == [127, -127, 0]
    assert scales.tolist() == [2.0, np.float32(12.7) / np.float32(127), 0.0]


@pytest.mark.parametrize("tiny", [1e-45, 1e-38, 3e-37])
def test_values_too_small_to_scale_become_zeros(tiny: float) -> None:
    integers, scales = quantize_blocks(np.full(32, tiny, np.float32), 32)
    assert np.isfinite(scales).all()
    assert set(integers.ravel().tolist()) <= {0, 127}


@given(arrays.arrays(np.float32, 256, elements=st.floats(-(2.0**100), 2.0**100, width=32)), st.sampled_from([32, 256]))
def test_rounding_moves_no_value_by_more_than_half_a_step(x: F32s, block: int) -> None:
    wide = x.reshape(-1, block).astype(np.float64)
    step = np.abs(wide).max(axis=1, keepdims=True) / 127
    moved = np.abs(round_trip(x, block).reshape(-1, block) - wide)
    assert (moved <= step * (0.5 + 1e-4) + 1e-36).all()


def test_rms_norm_of_three_four() -> None:
    y = rms_norm(np.array([3, 4], np.float32), RmsNorm(np.array([1, 2], np.float32), eps=0.25))
    assert y == pytest.approx(np.array([3, 8]) / np.sqrt(12.75), rel=1e-7)


def test_activations_at_known_points() -> None:
    x = np.array([0, 1, -1, 100, -1000], np.float32)
    assert activate(x, "silu") == pytest.approx([0, 0.7310586, -0.2689414, 100, 0], abs=1e-7)
    assert activate(x, "gelu") == pytest.approx([0, 0.8411920, -0.1588080, 100, 0], abs=1e-6)


@pytest.mark.parametrize("style", ["interleaved", "halves"])
def test_rotation_is_multiplication_of_complex_numbers(style: str) -> None:
    x, inv_freq = _normal(0, 3, 12), np.array([1.0, 0.1, 0.01, 0.001])
    angles = rope_angles(7, inv_freq, magnitude=1.5)
    y = rotate(x, angles, style)  # type: ignore[arg-type]
    real, imaginary = (slice(0, 8, 2), slice(1, 8, 2)) if style == "interleaved" else (slice(0, 4), slice(4, 8))
    turned = (x[:, real] + 1j * x[:, imaginary]) * 1.5 * np.exp(7j * inv_freq)
    assert np.abs(y[:, real] + 1j * y[:, imaginary] - turned).max() < 1e-6
    assert np.array_equal(y[:, 8:], x[:, 8:]), "what is not rotated stays"


@pytest.mark.parametrize("fmt", [F32, Q8_0, Q4_K], ids=lambda f: f.name)
def test_linear_multiplies_what_both_sides_are_after_rounding(fmt: Format) -> None:
    ops, rows = ReferenceOps(5), 3
    x, out = ops.slab(256), ops.slab(40)
    weight, bias = _weight(_normal(1, 40, 256), fmt), _normal(2, 40)
    x.array(rows)[:] = _normal(3, rows, 256)
    out.array(5)[:] = 1
    ops.run([ops.linear("l", x, [Projection(weight, out, bias, accumulate=True)])], _one_sequence(rows))
    w = dequantize(weight.data, fmt).reshape(40, 256).astype(np.float64)
    block = fmt.block_weights
    inputs = [round_trip(row, block) if block > 1 else row for row in x.array(rows)]
    assert out.array(rows) == pytest.approx(1 + np.stack(inputs) @ w.T + bias, rel=1e-4, abs=1e-4)
    assert (out.array(5)[rows:] == 1).all(), "rows that are not in the pass stay untouched"


def test_linear_normalizes_or_gates_its_input() -> None:
    ops = ReferenceOps(2)
    x, up, a, b = ops.slab(8), ops.slab(8), ops.slab(8), ops.slab(8)
    x.array(2)[:], up.array(2)[:] = _normal(1, 2, 8), _normal(2, 2, 8)
    one, norm = _weight(np.eye(8, dtype=np.float32)), RmsNorm(_normal(3, 8), 1e-5)
    normed = ops.linear("n", x, [Projection(one, a)], norm=norm)
    gated = ops.linear("g", x, [Projection(one, b)], gate=Gate(up, "silu"))
    ops.run([normed, gated], _one_sequence(2))
    xs, ups = x.array(2).astype(np.float64), up.array(2).astype(np.float64)
    expected = xs / np.sqrt((xs**2).mean(1, keepdims=True) + 1e-5) * norm.weight
    assert a.array(2) == pytest.approx(expected, abs=1e-6)
    assert b.array(2) == pytest.approx(xs / (1 + np.exp(-xs)) * ups, abs=1e-6)


def test_head_computes_wanted_rows_only_and_in_order() -> None:
    ops = ReferenceOps(6)
    x, out = ops.slab(8), ops.slab(5)
    x.array(6)[:] = _normal(1, 6, 8)
    weight, norm = _weight(_normal(2, 5, 8)), RmsNorm(np.ones(8, np.float32), 1e-5)
    batch = Batch((Span([0, 0, 0], 0, (0,), 1), Span([0], 0, (1,), 0), Span([0, 0], 0, (2,), 2)))
    ops.run([ops.head("h", x, norm, weight, out)], batch)
    xs = x.array(6)[[2, 4, 5]].astype(np.float64)
    expected = xs / np.sqrt((xs**2).mean(1, keepdims=True) + 1e-5) @ dequantize(weight.data, F32).reshape(5, 8).T
    assert out.array(batch.n_logits) == pytest.approx(expected, abs=1e-5)


def test_a_weight_too_large_to_keep_is_dequantized_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = _weight(_normal(1, 100, 64), Q8_0), _normal(2, 3, 64)

    def products() -> F32s:
        ops = ReferenceOps(3)
        source, out = ops.slab(64), ops.slab(100)
        source.array(3)[:] = x
        ops.run([ops.linear("l", source, [Projection(weight, out)])], _one_sequence(3))
        return out.array(3)

    whole = products()
    monkeypatch.setattr("fucina.ops.reference.matrix.KEEP_BYTES", 0)
    monkeypatch.setattr("fucina.ops.reference.matrix.SLICE_BYTES", 7 * 64 * 4)
    assert products() == pytest.approx(whole, rel=1e-5, abs=1e-5)


def _attend(kv_format: str, window: int | None, n_rows: int) -> tuple[F32s, F32s, F32s, F32s, KvPool]:
    """One pass of n_rows positions over blocks 3, 1, 4, ...: q, k, v (rows, heads, d_head), out, and the pool."""
    pool = KvPool(KvGeometry((LayerGeometry(2, 32), LayerGeometry(2, 32)), kv_format), 9)
    pool.memory[:] = b"\xff" * len(pool.memory)  # NaN everywhere: what was never written must never be read
    ops = ReferenceOps(n_rows)
    ops.bind_pool(pool)
    q, k, v, out, angles = (ops.slab(w) for w in (128, 64, 64, 128, 32))
    for seed, slab in enumerate((q, k, v)):
        slab.array(n_rows)[:] = _normal(seed, n_rows, slab.width)
    spec = AttentionSpec(
        layer=1, heads=4, kv_heads=2, d_head=32, d_rotary=32, rope_style="halves", scale=0.3, window=window
    )
    tape = [
        ops.rope_angles("r", np.zeros(16), angles),
        ops.attention("a", spec, q, k, v, angles, out),
    ]
    ops.run(tape, _one_sequence(n_rows, blocks=(3, 1, 4, 0, 8, 2, 7, 5, 6)))
    return (
        q.array(n_rows).reshape(n_rows, 4, 32),
        k.array(n_rows).reshape(n_rows, 2, 32),
        v.array(n_rows).reshape(n_rows, 2, 32),
        out.array(n_rows).reshape(n_rows, 4, 32),
        pool,
    )


def _dense(q: F32s, k: F32s, v: F32s, window: int | None) -> NDArray[np.float64]:
    """Softmax over all visible positions at once, in float64."""
    q64, k64, v64 = (a.astype(np.float64) for a in (q, k, v))
    scores = 0.3 * np.einsum("phd,thd->hpt", q64, np.repeat(k64, 2, axis=1))
    p, t = np.arange(len(q))[:, None], np.arange(len(q))[None]
    visible = (t <= p) & (t > p - (window or len(q) + 1))
    weights = np.where(visible, np.exp(scores), 0)
    return np.einsum("hpt,thd->phd", weights / weights.sum(-1, keepdims=True), np.repeat(v64, 2, axis=1))


@pytest.mark.parametrize("n_rows", [1, 63, 64, 65, 150, 257, 520])
@pytest.mark.parametrize("window", [None, 1, 5, 64, 300])
def test_attention_by_blocks_is_attention(window: int | None, n_rows: int) -> None:
    q, k, v, out, _ = _attend("f16", window, n_rows)
    half = [a.astype(np.float16).astype(np.float32) for a in (k, v)]
    assert np.abs(out - _dense(q, *half, window)).max() < 1e-6


@pytest.mark.parametrize("window", [None, 70])
def test_attention_over_eight_bits_is_attention(window: int | None) -> None:
    q, k, v, out, _ = _attend("q8_0", window, 150)
    eight = [round_trip(a.reshape(-1), 32).reshape(a.shape) for a in (k, v)]
    assert np.abs(out - _dense(q, *eight, window)).max() < 1e-6


def test_half_floats_lie_where_the_geometry_says() -> None:
    _, k, v, _, pool = _attend("f16", None, 70)
    block, slot, head, d = 1, 70 - 64 - 1, 1, 17  # position 69 lies in the sequence's second block, which is block 1
    layer = block * pool.geometry.block_bytes + pool.geometry.layer_offset(1)
    at = layer + head * (64 * 32 * 2) + (d * 64 + slot) * 2
    assert struct.unpack_from("<e", pool.memory, at)[0] == np.float16(k[69, head, d])
    at = layer + 2 * (64 * 32 * 2) + head * (64 * 32 * 2) + (slot * 32 + d) * 2
    assert struct.unpack_from("<e", pool.memory, at)[0] == np.float16(v[69, head, d])


def test_eight_bits_lie_where_the_geometry_says() -> None:
    _, k, v, _, pool = _attend("q8_0", None, 70)
    block, slot, head, d = 1, 5, 1, 17
    head_bytes = 64 * 32 + 64 * 4
    layer = block * pool.geometry.block_bytes + pool.geometry.layer_offset(1)
    for x, base, place, scale_at in (
        (k, layer + head * head_bytes, d * 64 + slot, slot),
        (v, layer + (2 + head) * head_bytes, slot * 32 + d, slot),
    ):
        integers, scales = quantize_blocks(x[69, head], 32)
        assert struct.unpack_from("<b", pool.memory, base + place)[0] == integers[0, d]
        assert struct.unpack_from("<f", pool.memory, base + 64 * 32 + 4 * scale_at)[0] == scales[0]


def test_keys_too_large_for_half_floats_warn_nobody() -> None:
    pool = KvPool(KvGeometry((LayerGeometry(1, 8),)), 1)
    ops = ReferenceOps(1)
    ops.bind_pool(pool)
    q, k, v, out, angles = (ops.slab(8) for _ in range(5))
    v.array(1)[:] = 1e6
    spec = AttentionSpec(layer=0, heads=1, kv_heads=1, d_head=8, d_rotary=8, rope_style="halves", scale=1.0)
    ops.run([ops.attention("a", spec, q, k, v, angles, out)], _one_sequence(1))
    assert np.isinf(out.array(1)).all()


@pytest.mark.parametrize(
    "span",
    [
        Span([1, 2], 0, (), 0),
        Span([1, 2], 63, (0,), 0),
        Span([1], -1, (0,), 0),
        Span([1], 0, (2,), 0),
        Span([1], 0, (-1,), 0),
        Span([1], 0, (0,), 2),
        Span([1], 0, (0,), -1),
        Span([99], 0, (0,), 0),
        Span([-1], 0, (0,), 0),
        Span([1] * 5, 0, (0,), 0),
    ],
    ids=str,
)
def test_rows_out_of_bounds_are_refused(span: Span) -> None:
    ops = ReferenceOps(4)
    ops.bind_pool(KvPool(KvGeometry((LayerGeometry(1, 8),)), 2))
    tape = [ops.embed("e", _weight(_normal(1, 10, 8)), ops.slab(8))]
    with pytest.raises(ShapeError):
        ops.run(tape, Batch((span,)))


def test_what_does_not_fit_is_refused_when_bound() -> None:
    ops = ReferenceOps(4)
    x, out, w = ops.slab(8), ops.slab(4), _weight(_normal(1, 4, 8))
    norm, narrow = RmsNorm(np.ones(8, np.float32), 1e-5), RmsNorm(np.ones(4, np.float32), 1e-5)
    for bind in (
        lambda: ops.slab(0),
        lambda: ops.linear("l", x, []),
        lambda: ops.linear("l", out, [Projection(w, out)]),
        lambda: ops.linear("l", x, [Projection(w, x)]),
        lambda: ops.linear("l", x, [Projection(w, out, np.ones(3, np.float32))]),
        lambda: ops.linear("l", x, [Projection(w, out)], norm=narrow),
        lambda: ops.linear("l", x, [Projection(w, out)], gate=Gate(out, "silu")),
        lambda: ops.linear("l", x, [Projection(w, out)], norm=norm, gate=Gate(x, "silu")),
        lambda: ops.embed("e", w, out),
        lambda: ops.rope_angles("r", np.ones(3), out),
        lambda: ops.add_norm("a", x, out, norm),
        lambda: ops.add_norm("a", x, x, narrow),
        lambda: ops.head("h", x, narrow, w, out),
        lambda: ops.head("h", x, norm, w, x),
    ):
        with pytest.raises(ShapeError):
            bind()
