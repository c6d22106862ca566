"""The mixture verb on every backend and tier: its sentence as a formula in NumPy, and the law, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.formats import F16, F32, MXFP4, Q4_1, Q4_K, Q6_K, Q8_0, Format
from fucina.core.nativelib import Native, open_native
from fucina.errors import ShapeError, UnsupportedFormat
from fucina.ops.batch import Batch, Span
from fucina.ops.native import NativeOps
from fucina.ops.reference import ReferenceOps
from fucina.ops.reference.dequant import dequantize
from fucina.ops.seam import Experts, LeavesOutExperts, MixtureSpec, Ops, RmsNorm, SwitchedBranch
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.weights import Weight
from fucina.testing.quantize import quantize

F32s = NDArray[np.float32]
N_EXPERTS, N_USED, D_MODEL, D_EXPERT, ROWS = 6, 3, 256, 512, 67
SPEC = MixtureSpec(layer=0, n_experts=N_EXPERTS, n_used=N_USED, renormalize=True)
SPECS = {
    "renormalized": SPEC,
    "plain": replace(SPEC, renormalize=False, scale=2.5),
    "one": replace(SPEC, n_used=1),
    "all": replace(SPEC, n_used=N_EXPERTS, activation="gelu"),
    "some left out": replace(SPEC, n_used=N_EXPERTS, top_p=0.7),
    "some left out, plain": replace(SPEC, renormalize=False, scale=0.5, top_p=0.6),
}
NORM = RmsNorm(np.linspace(0.5, 1.5, D_MODEL, dtype=np.float32), 1e-6)
MIXES = {"floats": (F32, F16, F32), "K": (Q4_K, Q6_K, Q4_K), "blocks": (Q8_0, Q4_1, MXFP4), "each": (F16, Q4_K, Q8_0)}

native = open_native()
TIERS = [name for name, runs in native.module.tiers() if runs] if isinstance(native, Native) else []


@dataclass(frozen=True)
class Inputs:
    """Rows of x, of the router's scores, and of a shared branch with its switch."""

    x: F32s
    scores: F32s
    y: F32s
    switch: F32s

    def rows(self, rows: list[int]) -> Inputs:
        return Inputs(self.x[rows], self.scores[rows], self.y[rows], self.switch[rows])


def _inputs() -> Inputs:
    """Scores are whole numbers, so that ties are common; one row prefers the last experts, another has equal scores."""
    rng = np.random.default_rng(1)
    scores = rng.integers(-3, 4, (ROWS, N_EXPERTS)).astype(np.float32)
    scores[1], scores[2], scores[3] = np.arange(N_EXPERTS), 0, [0, -np.inf, 90, 0, 0, 88]
    x, y = (rng.standard_normal((ROWS, D_MODEL), dtype=np.float32) for _ in range(2))
    switch = rng.standard_normal((ROWS, 1), dtype=np.float32)
    switch[:4, 0] = 0, 200, -200, -80
    return Inputs(x, scores, y, switch)


def _stack(name: str, d_out: int, d_in: int, fmt: Format) -> Weight:
    seed = [*name.encode()]
    array = np.random.default_rng(seed).standard_normal((N_EXPERTS, d_out, d_in), dtype=np.float32) / np.float32(16)
    return Weight(name, fmt, array.shape, quantize(array, fmt).view(np.uint8).reshape(-1))


def _experts(formats: tuple[Format, Format, Format]) -> Experts:
    gate, up, down = formats
    return Experts(
        _stack("gate", D_EXPERT, D_MODEL, gate),
        _stack("up", D_EXPERT, D_MODEL, up),
        _stack("down", D_MODEL, D_EXPERT, down),
    )


def _native_ops(tier: str, threads: int, repack: bool = True) -> NativeOps:
    assert isinstance(native, Native)
    return NativeOps(native.module, max_rows=ROWS, threads=threads, tier=tier, repack=repack)


class Bound:
    """The verb bound on one backend, run over any rows."""

    def __init__(self, ops: Ops, experts: Experts, spec: MixtureSpec, shared: bool) -> None:
        ops.bind_pool(KvPool(KvGeometry((LayerGeometry(1, 8),)), 2))
        table = Weight("tokens", F32, (1, 8), np.zeros(32, np.uint8))
        widths = {"x": D_MODEL, "scores": N_EXPERTS, "y": D_MODEL, "switch": 1}
        self.ops, self.slabs = ops, {name: ops.slab(width) for name, width in widths.items()}
        branch = SwitchedBranch(self.slabs["y"], self.slabs["switch"]) if shared else None
        slabs = self.slabs["x"], NORM, self.slabs["scores"]
        op = ops.mixture("m", *slabs, experts, spec, shared=branch)
        self.tape = (ops.embed("embed", table, ops.slab(8)), op)

    def run(self, inputs: Inputs) -> F32s:
        n = len(inputs.x)
        for name, slab in self.slabs.items():
            slab.array(n)[:] = getattr(inputs, name)
        self.ops.run(self.tape, Batch((Span([0] * n, 0, (0, 1), 0),)))
        return self.slabs["x"].array(n).copy()


def _rounded(x: NDArray[np.float64], block: int) -> NDArray[np.float64]:
    """A row as quantized weights see it: whole multiples of the block's largest value / 127."""
    if block == 1:
        return x
    blocks = x.reshape(-1, block)
    step = np.abs(blocks).max(axis=1, keepdims=True) / 127
    return np.asarray((np.rint(blocks / step) * step).reshape(-1))


def _kept(shares: list[float], top_p: float) -> int:
    """The fewest of the shares, in their order, that are `top_p` of all together."""
    return next(n for n in range(1, len(shares) + 1) if n == len(shares) or sum(shares[:n]) >= top_p * sum(shares))


def _formula(inputs: Inputs, experts: Experts, spec: MixtureSpec, shared: bool) -> NDArray[np.float64]:
    stacks = (experts.gate, experts.up, experts.down)
    gate, up, down = (dequantize(w.data, w.format).reshape(w.shape).astype(np.float64) for w in stacks)
    blocks = [w.format.block_weights for w in stacks]
    out = inputs.x.astype(np.float64)
    for x, scores in zip(out, inputs.scores.astype(np.float64), strict=True):
        normed = x / np.sqrt((x * x).mean() + NORM.eps) * NORM.weight
        chosen = sorted(range(N_EXPERTS), key=lambda e: (-scores[e], e))[: spec.n_used]
        shares = [np.exp(scores[e]) / np.exp(scores).sum() for e in chosen]
        shares = shares[: _kept(shares, spec.top_p)]
        total = sum(shares) if spec.renormalize else 1.0
        for e, share in zip(chosen, shares, strict=False):  # of those left out there is no share
            g, u = gate[e] @ _rounded(normed, blocks[0]), up[e] @ _rounded(normed, blocks[1])
            if spec.activation == "silu":
                inner = g / (1 + np.exp(-g)) * u
            else:
                inner = g * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3))) * u
            x += share / total * spec.scale * (down[e] @ _rounded(inner, blocks[2]))
    if shared:
        out += inputs.y / (1 + np.exp(-inputs.switch.astype(np.float64)))
    return out


#: What is left out is chosen the same way in any format.
CASES = [(mix, name) for mix in MIXES for name, spec in SPECS.items() if spec.top_p == 1.0 or mix == "blocks"]


@pytest.mark.parametrize(("mix", "name"), CASES)
def test_every_backend_computes_the_formula(mix: str, name: str) -> None:
    """In float32, so in another order; of rounded rows one step of 1/127 where the last bit before it decides."""
    spec = SPECS[name]
    inputs, experts, shared = _inputs(), _experts(MIXES[mix]), spec.n_used != 1
    expected = _formula(inputs, experts, spec, shared)
    backends: list[Ops] = [ReferenceOps(ROWS), *(_native_ops(tier, 1) for tier in TIERS)]
    for ops in backends:
        off = np.abs(Bound(ops, experts, spec, shared).run(inputs) - expected).max(axis=1)
        allowed = (3e-6 if mix == "floats" else 2e-3) * np.abs(expected).max(axis=1)
        assert (off <= allowed).all(), ops.name


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.95])
def test_what_is_left_out_is_counted(top_p: float) -> None:
    spec, inputs, experts = replace(SPEC, n_used=5, top_p=top_p), _inputs(), _experts(MIXES["blocks"])
    inputs.scores[:] = np.random.default_rng(2).normal(0, 1.5, inputs.scores.shape)
    used = 0
    for scores in inputs.scores.astype(np.float64):
        shares = sorted(np.exp(scores), reverse=True)[:5]
        ends = [sum(shares[:n]) / sum(shares) for n in range(1, 5)]
        assert min(abs(end - top_p) for end in ends) > 1e-5, "float32 could decide otherwise"
        used += _kept(shares, top_p)
    backends: list[Ops] = [ReferenceOps(ROWS), *(_native_ops(tier, 2) for tier in TIERS)]
    for ops in backends:
        assert isinstance(ops, LeavesOutExperts)
        bound = Bound(ops, experts, spec, False)
        assert ops.expert_uses() == (0, 0)
        bound.run(inputs)
        assert ops.expert_uses() == (used, 5 * ROWS - used), ops.name


@pytest.mark.parametrize("mix", MIXES)
def test_no_schedule_shows_in_a_bit(mix: str) -> None:
    """Tiers, threads, packing, the number of rows, their order, and which others want the same experts."""
    if not TIERS:
        pytest.skip("the extension is not built")
    inputs, experts = _inputs(), _experts(MIXES[mix])
    spec = replace(SPEC, n_used=5, top_p=0.8) if mix == "K" else SPEC
    expected = Bound(_native_ops("scalar", 2), experts, spec, True).run(inputs)
    for tier in TIERS:
        for threads, repack in ((1, True), (2, True), (2, False)):
            bound = Bound(_native_ops(tier, threads, repack), experts, spec, True)
            passes = [list(range(ROWS))[::-1], list(range(5, 38)), [2, 2, 2, 2], [1], [3, 4], [66]]
            for rows in passes[1:] if tier in ("scalar", "baseline") else passes:
                got = bound.run(inputs.rows(rows))
                np.testing.assert_array_equal(got.view(np.uint32), expected[rows].view(np.uint32))


def test_a_reference_row_is_the_same_alone() -> None:
    inputs, experts = _inputs(), _experts(MIXES["each"])
    bound = Bound(ReferenceOps(ROWS), experts, SPEC, True)
    expected = bound.run(inputs)
    for rows in ([0], [5, 4, 3], list(range(20, 60))):
        np.testing.assert_array_equal(bound.run(inputs.rows(rows)), expected[rows])


@pytest.mark.parametrize("top_p", [1.0, 0.5])
@pytest.mark.parametrize("tier", TIERS)
def test_scores_that_are_no_numbers_break_nothing_but_their_row(tier: str, top_p: float) -> None:
    inputs, experts = _inputs(), _experts(MIXES["blocks"])
    bound = Bound(_native_ops(tier, 2), experts, replace(SPEC, top_p=top_p), False)
    rows = list(range(8))
    expected = bound.run(inputs.rows(rows))
    for bad in (np.full(N_EXPERTS, np.nan), [np.nan, 1, np.nan, 2, 3, np.nan], [np.inf] * 3 + [-np.inf] * 3):
        inputs.scores[7] = bad
        np.testing.assert_array_equal(bound.run(inputs.rows(rows))[:7], expected[:7])


def _all_ops() -> list[Ops]:
    return [ReferenceOps(4), *(_native_ops(tier, 1) for tier in TIERS[-1:])]


def test_what_does_not_fit_is_refused_when_bound() -> None:
    experts = _experts(MIXES["floats"])
    for ops in _all_ops():
        x, scores, narrow = ops.slab(D_MODEL), ops.slab(N_EXPERTS), ops.slab(N_EXPERTS - 1)
        wrong_down = replace(experts, down=experts.up)
        one_less = replace(experts, gate=replace(experts.gate, shape=(N_EXPERTS - 1, D_EXPERT, D_MODEL)))
        for args in (
            (x, NORM, narrow, experts, SPEC),
            (narrow, NORM, scores, experts, SPEC),
            (x, NORM, scores, wrong_down, SPEC),
            (x, NORM, scores, one_less, SPEC),
            (x, NORM, scores, experts, replace(SPEC, n_used=N_EXPERTS + 1)),
            (x, NORM, scores, experts, replace(SPEC, n_used=0)),
        ):
            with pytest.raises(ShapeError, match="m: "):
                ops.mixture("m", *args)
        with pytest.raises(ShapeError, match="m: "):
            ops.mixture("m", x, NORM, scores, experts, SPEC, shared=SwitchedBranch(x, scores))


def test_a_format_without_kernels_is_refused() -> None:
    experts = _experts(MIXES["floats"])
    unknown = replace(experts.up, format=Format(4, "Q4_2", 1, 4))
    with pytest.raises(UnsupportedFormat, match="up"):
        ReferenceOps(4).mixture(
            "m",
            *(ReferenceOps(4).slab(D_MODEL), NORM, ReferenceOps(4).slab(N_EXPERTS)),
            replace(experts, up=unknown),
            SPEC,
        )
