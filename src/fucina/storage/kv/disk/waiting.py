"""Blocks on their way to the disk: copied at once, found while they wait, and never more than there is room for."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Condition

from fucina.storage.kv.disk.record import Record

Block = tuple[bytes, bytes]  # identity and name


@dataclass(slots=True)
class Item:
    """A block that waits; its bytes lie in a slot of the staging memory. The record's checksum is not yet known."""

    record: Record
    slot: int
    when: int


@dataclass(slots=True)
class Batch:
    """What the writer does next."""

    items: list[Item] = field(default_factory=list)
    used: dict[Block, int] = field(default_factory=dict)
    gone: set[Block] = field(default_factory=set)


class Waiting:
    """A queue between one thread that puts, the engine's, and one that takes, the writer's."""

    def __init__(self, block_bytes: int, n_slots: int) -> None:
        self._block_bytes, self._n_slots = block_bytes, n_slots
        self._memory = memoryview(mmap.mmap(-1, block_bytes * n_slots))
        self._free = list(range(n_slots))
        self._changed = Condition()
        self._items: dict[bytes, Item] = {}
        self._next = Batch()
        self._n_taken = self._n_done = 0
        self._closed = self._hurried = False

    def put(self, record: Record, payload: memoryview, when: int, patience_s: float) -> bool:
        """Copy a block and queue it; False if there is no room, even after waiting that long."""
        with self._changed:
            if not self._free and patience_s > 0:
                self._changed.wait_for(lambda: bool(self._free) or self._closed, patience_s)
            if not self._free or self._closed:
                return False
            slot = self._free.pop()
        self.payload(slot)[:] = payload
        with self._changed:
            item = self._items[record.name] = Item(record, slot, when)
            self._next.items.append(item)
            self._changed.notify_all()
        return True

    def note_use(self, block: Block, when: int) -> None:
        """Remember a use, to be stored when something else is, or soon."""
        with self._changed:
            if not self._closed:
                self._next.used[block] = when

    def note_gone(self, block: Block) -> None:
        """Have a block forgotten whose record is not what it should be."""
        with self._changed:
            if not self._closed:
                self._next.gone.add(block)
            self._changed.notify_all()

    def find(self, name: bytes) -> Item | None:
        """A block that waits, by name."""
        with self._changed:
            return self._items.get(name)

    def children(self, parent: bytes) -> Iterator[Item]:
        """Blocks that wait and lie behind a parent."""
        with self._changed:
            items = list(self._items.values())
        return (item for item in items if item.record.parent == parent)

    def payload(self, slot: int) -> memoryview:
        """The bytes of a block that waits. Only `put` changes what lies in a slot that was given back."""
        return self._memory[slot * self._block_bytes : (slot + 1) * self._block_bytes]

    def take(self, most_s: float) -> Batch | None:
        """What is to do next, as soon as there is a block; uses alone after `most_s`. None when all is done."""
        with self._changed:
            self._changed.wait_for(self._is_urgent, most_s)
            batch, self._next = self._next, Batch()
            n_most = max(1, self._n_slots // 2)  # the rest can fill while this is written
            batch.items, self._next.items = batch.items[:n_most], batch.items[n_most:]
            if not (batch.items or batch.used or batch.gone) and self._closed:
                return None
            self._n_taken += 1
            return batch

    def done(self, batch: Batch) -> None:
        """Forget what was taken, and give its room back."""
        with self._changed:
            for item in batch.items:
                if self._items.get(item.record.name) is item:
                    del self._items[item.record.name]
                self._free.append(item.slot)
            self._n_done += 1
            self._changed.notify_all()

    def drain(self, patience_s: float) -> bool:
        """Wait until all that was put before is done; False if it takes longer."""
        deadline = time.monotonic() + patience_s
        with self._changed:
            self._hurried = True
            self._changed.notify_all()
            try:
                return self._changed.wait_for(self._is_idle, max(0.0, deadline - time.monotonic()))
            finally:
                self._hurried = False

    def close(self) -> None:
        """Take nothing more; what waits is still given out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_urgent(self) -> bool:
        waiting = self._next
        return bool(waiting.items or waiting.gone or (waiting.used and self._hurried) or self._closed)

    def _is_idle(self) -> bool:
        waiting = self._next
        return not (waiting.items or waiting.used or waiting.gone) and self._n_taken == self._n_done
