"""What speculation did for one sequence, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fucina.decoding.speculation.gate import GateState


class SourceReport(NamedTuple):
    """One source of drafts: tokens it drafted, how many were right, whether it is muted for being wrong too often."""

    name: str
    drafted: int
    accepted: int
    is_muted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationStats:
    """Counts of one request.

    `verify_steps` tried drafts; `fallback_steps` would have, but no source had any; `off_steps` were plain because the
    gate was closed. Of `drafted` tokens `accepted` were right; `forced` of them a grammar drafted, because it
    allowed no other. A verify whose drafts were all right gave one more, a
    `bonus`; the others, `rejected`, gave the token that should have been drafted. `verify_cost` is what the verifies
    should have taken, in plain steps (0 without a gate). `gate` and `estimated_speedup` are as
    the request left them (None: no gate, too few verifies to judge).
    """

    verify_steps: int = 0
    fallback_steps: int = 0
    off_steps: int = 0
    drafted: int = 0
    accepted: int = 0
    forced: int = 0
    bonus: int = 0
    rejected: int = 0
    verify_cost: float = 0.0
    gate: GateState | None = None
    estimated_speedup: float | None = None
    sources: tuple[SourceReport, ...] = ()

    @property
    def acceptance(self) -> float:
        """The share of drafts that were right; 0 without any."""
        return self.accepted / self.drafted if self.drafted else 0.0
