"""What streaming experts did and cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertStats:
    """Numbers since the model was loaded. Hits and misses count each expert that a pass needs once.

    `slots` experts fit into `memory_bytes`, `pinned` of them are there to stay, of `experts` in all. Threads spent
    `read_s` reading and `pack_s` packing; passes had experts on their way for `busy_s`, and nothing to compute
    meanwhile for `wait_s`. Of `hinted` experts read ahead `hints_useful` were needed; `hints_dropped` were not read.
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

    @property
    def hit_rate(self) -> float:
        """Share of needed experts that were in memory, or on their way there before they were asked for."""
        hits = self.pinned_hits + self.cache_hits
        return hits / max(hits + self.misses, 1)

    @property
    def overlap(self) -> float:
        """Share of the time that reading took which passes spent computing; waking up takes some of the rest."""
        return max(0.0, 1.0 - self.wait_s / self.busy_s) if self.busy_s > 0.0 else 0.0
