"""How many KV blocks a model gets, and by which rule."""

from __future__ import annotations

from dataclasses import dataclass

from fucina.core.units import byte_count
from fucina.engine.scheduler import blocks_for
from fucina.errors import ConfigError
from fucina.models.loader import MemoryNeeded

#: Sequences of full length that the pool is made for, if memory allows. Only pages written to are ever taken.
_FULL_SEQUENCES = 4
#: Blocks without which no sequence gets far.
_FEWEST_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class KvPlan:
    """Blocks of the pool, and the rule that gave them, in a few words."""

    n_blocks: int
    rule: str


def kv_plan(needed: MemoryNeeded, kv_memory: int | str | None, free_bytes: int | None) -> KvPlan:
    """Plan for `kv_memory` bytes, else for several sequences of full length within half of the free memory.

    Without `kv_memory` there is room for one sequence in any case. `needed` is what one of full length takes;
    `free_bytes` is None where nobody knows. Raises ConfigError.
    """
    n_one = blocks_for(needed.kv_bytes // needed.kv_bytes_per_position)
    block_bytes = needed.kv_bytes // n_one
    if kv_memory is not None:
        n_bytes, least = byte_count(kv_memory, "kv_memory"), _FEWEST_BLOCKS * block_bytes
        if n_bytes < least:
            raise ConfigError("kv_memory", got=kv_memory, expected=f"at least {least} bytes, {_FEWEST_BLOCKS} blocks")
        return KvPlan(n_bytes // block_bytes, "as asked for")
    n_full = n_one * _FULL_SEQUENCES
    n_free = n_full if free_bytes is None else free_bytes // 2 // block_bytes
    if n_free >= n_full:
        return KvPlan(n_full, f"{_FULL_SEQUENCES} full contexts")
    if n_free > n_one:
        return KvPlan(n_free, "half of the free memory")
    return KvPlan(n_one, "one full context, which is more than half of the free memory")
