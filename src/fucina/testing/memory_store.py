"""A store of blocks in memory, in place of the disk tier; it may refuse to give back."""

from __future__ import annotations

from collections.abc import Sequence

from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.prefix import FoundBlock, StoredBlock


class MemoryStore:
    """Keeps the bytes of blocks of `pool`; `gives` may be changed at any time."""

    seconds_to_fetch: float | None = None

    def __init__(self, pool: KvPool, *, gives: bool = True) -> None:
        self.pool, self.gives = pool, gives
        #: What is kept, by name: the block's facts and its bytes.
        self.blocks: dict[bytes, tuple[StoredBlock, bytes]] = {}
        self.n_fetched = 0

    def keep(self, stored: StoredBlock) -> None:
        """Copy the block's bytes."""
        size = self.pool.geometry.block_bytes
        content = self.pool.memory[stored.block * size : (stored.block + 1) * size]
        self.blocks.setdefault(stored.name, (stored, content))

    def find(self, parent: bytes, ids: Sequence[int]) -> FoundBlock | None:
        """Find the block behind `parent` that begins with most of `ids`."""
        known = [stored for stored, _ in self.blocks.values() if stored.parent == parent]
        best = max(known, key=lambda stored: _n_common(stored.tokens, ids), default=None)
        n_common = 0 if best is None else _n_common(best.tokens, ids)
        return FoundBlock(best.name, best.tokens, n_common) if best is not None and n_common else None

    def fetch(self, name: bytes, tokens: Sequence[int], block: int) -> bool:
        """Give a block back; or spoil the pool's block, as a store does that finds out half way."""
        assert self.blocks[name][0].tokens == tokens
        size = self.pool.geometry.block_bytes
        if not self.gives:
            self.pool.memory[block * size : block * size + 8] = bytes(8)
            return False
        self.pool.memory[block * size : (block + 1) * size] = self.blocks[name][1]
        self.n_fetched += 1
        return True

    def be_patient(self, seconds: float) -> None:
        """Nothing has to be waited for."""

    def close(self) -> bool:
        """All is kept."""
        return True


def _n_common(ours: Sequence[int], theirs: Sequence[int]) -> int:
    differs = (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    return next(differs, min(len(ours), len(theirs)))
