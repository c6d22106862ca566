"""Routed experts, row by row and rank by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fucina.ops.reference.matrix import Matrix
from fucina.ops.reference.rowwise import activate, rms_norm
from fucina.ops.reference.slab import ReferenceSlab, Row
from fucina.ops.seam import Activation, Experts, MixtureSpec, RmsNorm


@dataclass(frozen=True, slots=True)
class Expert:
    """One feed-forward block among many."""

    gate: Matrix
    up: Matrix
    down: Matrix

    def output(self, x: NDArray[np.float32], activation: Activation) -> NDArray[np.float32]:
        """down(activation(gate(x)) * up(x)); x and the result (d_model,) f32."""
        inner = activate(self.gate.products(x[None])[0], activation) * self.up.products(x[None])[0]
        return np.asarray(self.down.products(inner[None])[0], np.float32)


def bind_experts(experts: Experts) -> tuple[Expert, ...]:
    """Every expert with matrices of its own. Raises UnsupportedFormat."""
    stacks = zip(experts.gate.parts(), experts.up.parts(), experts.down.parts(), strict=True)
    return tuple(Expert(Matrix(gate), Matrix(up), Matrix(down)) for gate, up, down in stacks)


def choose_experts(scores: NDArray[np.float32], spec: MixtureSpec) -> tuple[list[int], NDArray[np.float32]]:
    """A row's experts by rank, and as many weights, f32; scores (n_experts,). They are n_used, fewer with a top_p.

    Source: Shazeer et al., "Outrageously Large Neural Networks", 2017, in the form that Mixtral and Qwen use.
    """
    chosen = np.argsort(-scores, kind="stable")[: spec.n_used]
    shares = np.exp(scores.astype(np.float64) - scores.max())
    weights = (shares / shares.sum())[chosen]
    if spec.top_p < 1.0:
        n_kept = 1 + int(np.count_nonzero(weights.cumsum()[:-1] < spec.top_p * weights.sum()))
        chosen, weights = chosen[:n_kept], weights[:n_kept]
    if spec.renormalize:
        weights = weights / weights.sum()
    return chosen.tolist(), (weights * spec.scale).astype(np.float32)


def sigmoid(x: np.float32) -> np.float32:
    """1 / (1 + e^-x)."""
    with np.errstate(over="ignore"):
        return np.float32(1.0 / (1.0 + np.exp(-np.float64(x))))


@dataclass(slots=True)
class ExpertUses:
    """How many of the experts that rows chose were used, and how many left out."""

    used: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class MixtureOp:
    """x += the weighted outputs of each row's experts, and of a branch that all rows share: (y, its switch)."""

    name: str
    x: ReferenceSlab
    scores: ReferenceSlab
    norm: RmsNorm
    experts: tuple[Expert, ...]
    spec: MixtureSpec
    shared: tuple[ReferenceSlab, ReferenceSlab] | None
    uses: ExpertUses

    def run(self, rows: Sequence[Row]) -> None:
        """One row after the other, its experts by rank."""
        for r in range(len(rows)):
            x = self.x.row(r)
            normed = rms_norm(x, self.norm)
            chosen, weights = choose_experts(self.scores.row(r), self.spec)
            self.uses.used += len(chosen)
            self.uses.left_out += self.spec.n_used - len(chosen)
            for expert, weight in zip(chosen, weights, strict=True):
                x += weight * self.experts[expert].output(normed, self.spec.activation)
            if self.shared is not None:
                y, switch = (slab.row(r) for slab in self.shared)
                x += sigmoid(switch[0]) * y
