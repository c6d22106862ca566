"""Checks when an op is bound: shapes that do not fit are ShapeErrors before any arithmetic, on every backend alike."""

from __future__ import annotations

from fucina.errors import ShapeError
from fucina.ops.seam import AttentionSpec, Experts, Gate, MixtureSpec, Projection, RmsNorm, Slab, SwitchedBranch
from fucina.storage.weights import Weight


def require_equal(what: str, got: object, expected: object) -> None:
    """Raise ShapeError unless the two are equal."""
    if got != expected:
        raise ShapeError(what, expected=expected, got=got)


def check_norm(name: str, norm: RmsNorm, width: int) -> None:
    """A norm's weight is (width,)."""
    require_equal(f"{name}: norm weight", norm.weight.shape, (width,))


def check_linear(
    name: str, x: Slab, projections: tuple[Projection, ...], norm: RmsNorm | None, gate: Gate | None
) -> None:
    """Every weight fits input and output; a norm and a gate exclude each other."""
    if not projections:
        raise ShapeError(f"{name}: projections", expected="at least one", got="none")
    if norm is not None and gate is not None:
        raise ShapeError(f"{name}: input", expected="a norm or a gate", got="both")
    if norm is not None:
        check_norm(name, norm, x.width)
    if gate is not None:
        require_equal(f"{name}: gate width", gate.up.width, x.width)
    for p in projections:
        require_equal(f"{name}: shape of {p.weight.name}", p.weight.shape, (p.out.width, x.width))
        if p.bias is not None:
            require_equal(f"{name}: bias", p.bias.shape, (p.out.width,))


def check_table(name: str, table: Weight, width: int) -> None:
    """An embedding table is (vocab, width)."""
    require_equal(f"{name}: shape of {table.name}", table.shape, (table.shape[0], width))


def check_attention(name: str, spec: AttentionSpec, q: Slab, k: Slab, v: Slab, angles: Slab, out: Slab) -> None:
    """Slab widths follow from the heads; the rotated part of a head is even and no wider than the head."""
    if spec.kv_heads < 1 or spec.heads % spec.kv_heads:
        raise ShapeError(f"{name}: heads", expected=f"a multiple of {spec.kv_heads} KV heads", got=spec.heads)
    if spec.d_rotary % 2 or not 0 <= spec.d_rotary <= spec.d_head:
        raise ShapeError(f"{name}: d_rotary", expected=f"an even number up to {spec.d_head}", got=spec.d_rotary)
    if spec.window is not None and spec.window < 1:
        raise ShapeError(f"{name}: window", expected="at least 1", got=spec.window)
    require_equal(f"{name}: width of q", q.width, spec.heads * spec.d_head)
    require_equal(f"{name}: width of out", out.width, spec.heads * spec.d_head)
    require_equal(f"{name}: width of k", k.width, spec.kv_heads * spec.d_head)
    require_equal(f"{name}: width of v", v.width, spec.kv_heads * spec.d_head)
    require_equal(f"{name}: width of angles", angles.width, spec.d_rotary)
    for norm in (spec.q_norm, spec.k_norm):
        if norm is not None:
            check_norm(name, norm, spec.d_head)


def check_mixture(
    name: str,
    x: Slab,
    norm: RmsNorm,
    scores: Slab,
    experts: Experts,
    spec: MixtureSpec,
    shared: SwitchedBranch | None,
) -> None:
    """Every row can use its experts, and they fit its width and one another."""
    if not 1 <= spec.n_used <= spec.n_experts:
        raise ShapeError(f"{name}: experts used", expected=f"1 to {spec.n_experts}", got=spec.n_used)
    check_norm(name, norm, x.width)
    require_equal(f"{name}: width of scores", scores.width, spec.n_experts)
    d_expert = experts.down.d_in
    inward = (spec.n_experts, d_expert, x.width)
    require_equal(f"{name}: shape of {experts.gate.name}", experts.gate.shape, inward)
    require_equal(f"{name}: shape of {experts.up.name}", experts.up.shape, inward)
    require_equal(f"{name}: shape of {experts.down.name}", experts.down.shape, (spec.n_experts, x.width, d_expert))
    if shared is not None:
        require_equal(f"{name}: widths of the shared branch", (shared.y.width, shared.switch.width), (x.width, 1))
