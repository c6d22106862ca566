"""One sequence's keys and values: a table of blocks and a length. Rewinding is one integer store."""

from __future__ import annotations

from fucina.core.shapes import KV_BLOCK
from fucina.errors import Closed, ConfigError
from fucina.storage.kv.pool import KvPool


class KvSequence:
    """A KV cache over blocks of a pool, shared with its forks until one of them writes."""

    def __init__(self, pool: KvPool) -> None:
        self.pool = pool
        self.blocks: list[int] = []
        #: Positions that hold valid keys and values; to be read only.
        self.length = 0
        self._reserved_end = 0  # the positions from length up to here are writable; 0: look at the blocks
        self._closed = False

    def adopt(self, block: int, n_positions: int) -> None:
        """Go on by a block that others have computed and still own, of which the first `n_positions` are of use.

        Only whole blocks may come before.
        """
        assert self.length == len(self.blocks) * KV_BLOCK
        self.pool.share(block)
        self.blocks.append(block)
        self.length += n_positions

    def reserve(self, n_rows: int) -> None:
        """Make positions length .. length + n_rows - 1 writable: take blocks, copy a shared partial one.

        On KvPoolFull nothing has changed but blocks already taken, which stay for the next try.
        """
        if self._closed:
            raise Closed("this KV sequence was closed")
        if self.length + n_rows <= self._reserved_end:
            return
        first, last = self.length // KV_BLOCK, (self.length + n_rows - 1) // KV_BLOCK
        for index in range(first, min(last + 1, len(self.blocks))):
            if self.pool.is_shared(self.blocks[index]):
                fresh = self.pool.take()
                if index * KV_BLOCK < self.length:
                    self.pool.copy(self.blocks[index], fresh)
                self.pool.release(self.blocks[index])
                self.blocks[index] = fresh
        while len(self.blocks) <= last:
            self.blocks.append(self.pool.take())
        self._reserved_end = (last + 1) * KV_BLOCK

    def advance(self, n_rows: int) -> None:
        """Count `n_rows` reserved and written positions as valid."""
        self.length += n_rows
        assert self.length <= self._reserved_end

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on. The blocks stay, ready to be written again."""
        if not 0 <= length <= self.length:
            raise ConfigError("truncate", got=length, expected=f"0 to {self.length}")
        self.length = length
        self._reserved_end = 0  # the blocks gone back to may be shared

    def trim(self) -> None:
        """Give back the blocks past the length."""
        keep = -(-self.length // KV_BLOCK)
        self._reserved_end = 0
        while len(self.blocks) > keep:
            self.pool.release(self.blocks.pop())

    def fork(self) -> KvSequence:
        """A second sequence with the same content; blocks are shared until either writes into one."""
        other = KvSequence(self.pool)
        keep = -(-self.length // KV_BLOCK)
        self._reserved_end = 0
        for block in self.blocks[:keep]:
            self.pool.share(block)
            other.blocks.append(block)
        other.length = self.length
        return other

    def close(self) -> None:
        """Give every block back. Closing twice is harmless."""
        for block in self.blocks:
            self.pool.release(block)
        self.blocks, self.length, self._reserved_end, self._closed = [], 0, 0, True
