"""What experts did and cost: those that were read, and those that were left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertStats:
    """Numbers since the model was loaded. Hits and misses count each expert that a pass needs once.

    `slots` experts fit into `memory_bytes`, `pinned` of them are there to stay, of `experts` in all. Threads spent
    `read_s` reading and `pack_s` packing; passes had experts on their way for `busy_s`, and nothing to compute
    meanwhile for `wait_s`: they waited, or read themselves. Of `hinted` experts read ahead `hints_useful` were needed;
    `hints_dropped` were not read. Of `foreseeable` experts, which layers needed after somebody had looked ahead,
    `foreseen` had been expected, whether they had to be read or not.
    """

    experts: int
    slots: int
    pinned: int
    memory_bytes: int
    pinned_hits: int
    cache_hits: int
    misses: int
    bytes_read: int
    failed_reads: int
    read_s: float
    pack_s: float
    busy_s: float
    wait_s: float
    hinted: int
    hints_dropped: int
    hints_useful: int
    foreseen: int
    foreseeable: int

    @property
    def hit_rate(self) -> float:
        """Share of needed experts that were in memory, or on their way there before they were asked for."""
        hits = self.pinned_hits + self.cache_hits
        return hits / max(hits + self.misses, 1)

    @property
    def overlap(self) -> float:
        """Share of the time that reading took which passes spent computing; waking up takes some of the rest."""
        return max(0.0, 1.0 - self.wait_s / self.busy_s) if self.busy_s > 0.0 else 0.0

    @property
    def pilot_recall(self) -> float:
        """Share of the experts that layers needed which looking a layer ahead had named."""
        return self.foreseen / max(self.foreseeable, 1)

    @property
    def pilot_usefulness(self) -> float:
        """Share of the experts read ahead that were needed."""
        return self.hints_useful / max(self.hinted, 1)


class ExpertsLeftOut:
    """What the lossy option moe_expert_top_p has changed since the model was loaded, as it is now.

    An expert counts once for each row that chose it.
    """

    def __init__(self, top_p: float, uses: Callable[[], tuple[int, int]]) -> None:
        """`uses` tells how many were used and how many left out."""
        #: The share of their weight for which a row's experts are computed.
        self.top_p = top_p
        self._uses = uses

    @property
    def used(self) -> int:
        """Chosen experts that were computed."""
        return self._uses()[0]

    @property
    def left_out(self) -> int:
        """Chosen experts that were not, though the model would have computed them."""
        return self._uses()[1]

    @property
    def share(self) -> float:
        """Share of the chosen experts that was left out."""
        used, left_out = self._uses()
        return left_out / max(used + left_out, 1)
