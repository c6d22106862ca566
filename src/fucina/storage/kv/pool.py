"""A pool of KV blocks in one reserved range of memory, committed by the kernel as blocks are first written.

Blocks are reference-counted; a block with more than one owner is never written (see KvSequence).
"""

from __future__ import annotations

import mmap
import sys
from typing import Protocol

from fucina.errors import ConfigError, KvPoolFull
from fucina.storage.kv.geometry import KvGeometry
from fucina.storage.kv.warming import Warming

#: Python names this flag only from 3.13 on; its value is Linux's on x86 and ARM.
#: Attention walks through megabytes a step: with small pages it would wait for their addresses.
_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
#: So much past what is in use is touched ahead of need.
_WARM_BYTES = 64 << 20


class Reclaimer(Protocol):
    """Keeps blocks that it can do without: see KvPool.keep."""

    def reclaim(self, n_blocks: int) -> int:
        """Give back up to so many; tell how many."""


class KvPool:
    """`capacity` blocks of `geometry.block_bytes` bytes each. Not thread-safe: one engine thread owns it."""

    def __init__(self, geometry: KvGeometry, capacity: int) -> None:
        if capacity < 1:
            raise ConfigError("KV pool capacity", got=capacity, expected="at least one block")
        self.geometry, self.capacity = geometry, capacity
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self.memory = mmap.mmap(-1, capacity * geometry.block_bytes, flags=flags)
        if _HUGE_PAGES is not None:
            self.memory.madvise(_HUGE_PAGES)
        #: Who is asked for blocks when none is free.
        self.reclaimer: Reclaimer | None = None
        self._references = [0] * capacity
        self._is_kept = bytearray(capacity)
        self._n_kept_only = 0  # blocks whose one owner keeps them only
        self._warming = Warming(self.memory, _WARM_BYTES)
        self._free: list[int] = []
        self._untouched = 0

    @property
    def n_free(self) -> int:
        """Blocks that can still be taken."""
        return len(self._free) + self.capacity - self._untouched + self._n_kept_only

    def take(self) -> int:
        """A block with one reference; recently freed ones first, since their pages are warm. Raises KvPoolFull."""
        if not self._free and self._untouched == self.capacity and self.reclaimer is not None:
            self.reclaimer.reclaim(1)
        if self._free:
            block = self._free.pop()
        elif self._untouched < self.capacity:
            block = self._untouched
            self._untouched += 1
            self._warming.need(self._untouched * self.geometry.block_bytes)
        else:
            raise KvPoolFull(f"all {self.capacity} KV blocks are in use: end a sequence or give the pool more memory")
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more owner."""
        assert self._references[block] > 0
        self._n_kept_only -= self._is_kept[block] and self._references[block] == 1
        self._references[block] += 1

    def release(self, block: int) -> None:
        """One owner less; the block is free again after the last."""
        self._references[block] -= 1
        assert self._references[block] >= self._is_kept[block]
        if self._references[block] == 0:
            self._free.append(block)
        self._n_kept_only += self._is_kept[block] and self._references[block] == 1

    def keep(self, block: int) -> None:
        """One more owner, the reclaimer: as long as it is the only one, the block counts as free."""
        assert not self._is_kept[block]
        self.share(block)
        self._is_kept[block] = True

    def let_go(self, block: int) -> None:
        """The reclaimer owns the block no longer."""
        assert self._is_kept[block]
        self._n_kept_only -= self._references[block] == 1
        self._is_kept[block] = False
        self.release(block)

    def is_shared(self, block: int) -> bool:
        """Whether the block has more than one owner."""
        return self._references[block] > 1

    def copy(self, source: int, target: int) -> None:
        """Copy all bytes of a block."""
        size = self.geometry.block_bytes
        self.memory[target * size : (target + 1) * size] = self.memory[source * size : (source + 1) * size]
