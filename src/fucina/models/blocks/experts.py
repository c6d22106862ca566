"""Feed-forward layers with routed experts: what metadata say of them, their tensors, their ops."""

from __future__ import annotations

from dataclasses import dataclass

from fucina.errors import UnsupportedModel
from fucina.models.metadata import Flag, Integer, MetadataReader, Real
from fucina.models.tensors import TensorReader
from fucina.ops.seam import (
    Activation,
    BoundOp,
    Experts,
    Gate,
    MixtureSpec,
    Ops,
    Projection,
    RmsNorm,
    Slab,
    SwitchedBranch,
)
from fucina.storage.weights import Weight

#: Experts that a file may have a layer, as many as tools that make such files allow, and some.
MOST_EXPERTS = 1024
#: `expert_gating_func` of a softmax over all scores.
SOFTMAX = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsShape:
    """The experts of every layer. `d_shared` is the width of the one that all rows use, 0 without one.

    `top_p` is no property of the model: below 1, the least of a row's experts are left out (see `MixtureSpec`).
    """

    n_experts: int
    n_used: int
    d_expert: int
    d_shared: int
    renormalize: bool
    scale: float
    top_p: float = 1.0

    def spec(self, layer: int, activation: Activation) -> MixtureSpec:
        """How the experts of that layer are chosen and weighed."""
        return MixtureSpec(
            layer=layer,
            n_experts=self.n_experts,
            n_used=self.n_used,
            renormalize=self.renormalize,
            scale=self.scale,
            top_p=self.top_p,
            activation=activation,
        )


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """A feed-forward block that every row uses, weighed by the sigmoid of switch @ x; switch (1, d_model)."""

    switch: Weight
    gate: Weight
    up: Weight
    down: Weight


@dataclass(frozen=True, slots=True)
class ExpertsWeights:
    """One layer's; the router is (n_experts, d_model)."""

    router: Weight
    experts: Experts
    shared: SharedExpert | None

    @property
    def bytes(self) -> int:
        """Of the routed experts, without router and shared expert."""
        return sum(stack.data.nbytes for stack in (self.experts.gate, self.experts.up, self.experts.down))


def read_experts(
    meta: MetadataReader, d_ff: int, *, renormalize: bool, shared: bool = False, divided: bool = True
) -> ExpertsShape:
    """What the file says of its experts, with what the family means where it says nothing.

    `renormalize`: weights of the chosen experts add up to one. `shared`: a shared expert is there. `divided`: together
    the experts of a row are as wide as `d_ff`, else each is. Raises MissingKey, BadHeader, UnsupportedModel.
    """
    width = Integer(1, 2**20)
    n_experts = meta.required("expert_count", Integer(1, MOST_EXPERTS))
    n_used = meta.required("expert_used_count", Integer(1, n_experts))
    meta.must_equal("expert_gating_func", SOFTMAX, why="only a softmax over the experts' scores is implemented")
    norm = meta.optional("expert_weights_norm", Flag())
    usual = max(d_ff // n_used, 1) if divided else d_ff
    return ExpertsShape(
        n_experts=n_experts,
        n_used=n_used,
        d_expert=meta.optional("expert_feed_forward_length", width) or usual,
        d_shared=(meta.optional("expert_shared_feed_forward_length", width) or d_ff) if shared else 0,
        renormalize=renormalize if norm is None else norm,
        scale=meta.optional("expert_weights_scale", Real()) or 1.0,
    )


def take_experts(tensors: TensorReader, shape: ExpertsShape, stem: str, d_model: int) -> ExpertsWeights:
    """The tensors of layer `stem`. Raises MissingTensor, BadTensor, UnsupportedModel."""
    if f"{stem}.ffn_gate.0.weight" in tensors:
        raise UnsupportedModel(
            f"{tensors.path}: '{stem}.ffn_gate.0.weight' is a tensor of one expert alone, as files had them until "
            "2024; convert the model again, so that a layer's experts are stacked"
        )
    n, width = shape.n_experts, shape.d_expert
    experts = Experts(
        tensors.stack(f"{stem}.ffn_gate_exps.weight", n, width, d_model),
        tensors.stack(f"{stem}.ffn_up_exps.weight", n, width, d_model),
        tensors.stack(f"{stem}.ffn_down_exps.weight", n, d_model, width),
    )
    router = tensors.matrix(f"{stem}.ffn_gate_inp.weight", n, d_model)
    return ExpertsWeights(router, experts, _take_shared(tensors, shape.d_shared, stem, d_model))


def _take_shared(tensors: TensorReader, width: int, stem: str, d_model: int) -> SharedExpert | None:
    if not width:
        return None
    return SharedExpert(
        tensors.row(f"{stem}.ffn_gate_inp_shexp.weight", d_model),
        tensors.matrix(f"{stem}.ffn_gate_shexp.weight", width, d_model),
        tensors.matrix(f"{stem}.ffn_up_shexp.weight", width, d_model),
        tensors.matrix(f"{stem}.ffn_down_shexp.weight", d_model, width),
    )


def experts_widths(shape: ExpertsShape, d_model: int, *, pilot: bool) -> dict[str, int]:
    """The buffers that layers with experts use, and their values per row; with a `pilot`, one for what it guesses."""
    widths = {"scores": shape.n_experts} | ({"guesses": shape.n_experts} if pilot else {})
    if shape.d_shared:
        widths |= {"switch": 1, "shared_gate": shape.d_shared, "shared_up": shape.d_shared, "branch": d_model}
    return widths


def experts_room(shape: ExpertsShape, d_model: int) -> int:
    """f32 values per row that a backend keeps between the products of all experts of a row."""
    return shape.n_used * (2 * d_model + 3 * shape.d_expert)


def bind_experts(
    stem: str,
    layer: int,
    shape: ExpertsShape,
    weights: ExpertsWeights,
    norm: RmsNorm,
    activation: Activation,
    ops: Ops,
    slabs: dict[str, Slab],
) -> list[BoundOp]:
    """x += the chosen experts of norm(x), by rank, and then the shared one."""
    x, scores, shared = slabs["x"], slabs["scores"], weights.shared
    spec = shape.spec(layer, activation)
    router = Projection(weights.router, scores)
    if shared is None:
        return [
            ops.linear(f"{stem}.router", x, [router], norm=norm),
            ops.mixture(f"{stem}.experts", x, norm, scores, weights.experts, spec),
        ]
    gate, up, switch, branch = (slabs[name] for name in ("shared_gate", "shared_up", "switch", "branch"))
    inputs = [router, Projection(shared.switch, switch), Projection(shared.gate, gate), Projection(shared.up, up)]
    added = SwitchedBranch(branch, switch)
    return [
        ops.linear(f"{stem}.router_shared", x, inputs, norm=norm),
        ops.linear(f"{stem}.shared_down", gate, [Projection(shared.down, branch)], gate=Gate(up, activation)),
        ops.mixture(f"{stem}.experts", x, norm, scores, weights.experts, spec, shared=added),
    ]
