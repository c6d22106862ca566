"""The disk tier: blocks that memory had no room for, found again by their tokens, also after a restart."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from fucina.core.shapes import KV_BLOCK
from fucina.errors import ConfigError
from fucina.storage.kv.disk.files import Files
from fucina.storage.kv.disk.folder import Folder
from fucina.storage.kv.disk.index import Place
from fucina.storage.kv.disk.record import (
    HEADER_BYTES,
    IDENTITY_BYTES,
    NAME_BYTES,
    SEGMENT_HEADER,
    Record,
    checksum,
    n_common_tokens,
    pack_tokens,
    unpack_tokens,
)
from fucina.storage.kv.disk.recovery import KvDiskWarning, open_index
from fucina.storage.kv.disk.waiting import Waiting
from fucina.storage.kv.disk.writer import Writer
from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.prefix import StoredBlock

#: Segments are deleted whole: an eighth of the capacity, so that little is lost at once, and no more than this.
_MOST_SEGMENT_BYTES = 256 << 20
_SEGMENTS_IN_CAPACITY = 8
#: Reading failed for want of something that may come back, not because of the record.
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES)


class Found(NamedTuple):
    """A stored block: its name, its tokens, and how many of those that were asked for it begins with."""

    name: bytes
    tokens: tuple[int, ...]
    n_common: int


@dataclass(slots=True)
class DiskCounters:
    """What happened on the engine's side since the tier was opened."""

    n_kept: int = 0  # queued to be stored
    n_known: int = 0  # were stored already
    n_dropped: int = 0  # no room in the queue, or writing is over
    n_restored: int = 0
    restored_bytes: int = 0
    restored_s: float = 0.0
    n_damaged: int = 0  # records that were not what they should be


class DiskTier:
    """Blocks of one model in a directory that processes and models may share. The engine's thread calls it.

    `identity` names all that keys and values depend on besides tokens, as for PrefixCache. Blocks of at most
    `capacity_bytes` are stored, all models together, and those used least recently go first. Raises ConfigError for a
    directory that cannot be used or is not safe, and for a capacity of less than one block.

    After the start nothing raises: what cannot be stored is computed again. When writing fails, it is over, which a
    KvDiskWarning says once; reading goes on.
    """

    def __init__(
        self,
        directory: Path,
        pool: KvPool,
        identity: bytes,
        capacity_bytes: int,
        *,
        queue_bytes: int = 128 << 20,
        files: Files | None = None,
    ) -> None:
        self._pool, self._files = pool, files or Files()
        self._block_bytes = pool.geometry.block_bytes
        key = repr((self._block_bytes, KV_BLOCK, pool.geometry)).encode()
        self._identity = blake2b(identity, key=blake2b(key).digest(), digest_size=IDENTITY_BYTES).digest()
        segment_bytes = min(_MOST_SEGMENT_BYTES, capacity_bytes // _SEGMENTS_IN_CAPACITY)
        segment_bytes = max(segment_bytes, len(SEGMENT_HEADER) + HEADER_BYTES + self._block_bytes)
        if capacity_bytes < segment_bytes:
            raise ConfigError("kv_disk", got=capacity_bytes, expected=f"at least {segment_bytes} bytes, one block")
        self.counters = DiskCounters()
        self._damaged: set[bytes] = set()
        self._patient_until = 0.0
        self._told = self._closed = False
        with contextlib.ExitStack() as undo:
            self._folder = undo.enter_context(contextlib.closing(Folder(directory)))
            self._index = undo.enter_context(contextlib.closing(open_index(self._folder, self._files)))
            self._waiting = Waiting(self._block_bytes, max(2, queue_bytes // self._block_bytes))
            self._writer = Writer(self._waiting, self._folder, self._index, self._files, capacity_bytes, segment_bytes)
            self._undo = undo.pop_all()

    @property
    def failure(self) -> Exception | None:
        """Why nothing is stored any more; None while all is well."""
        return self._writer.failure

    @property
    def n_stored(self) -> int:
        """Blocks that were stored and would survive a power cut."""
        return self._writer.n_stored

    @property
    def n_segments_removed(self) -> int:
        """Segments that had to go to make room."""
        return self._writer.n_segments_removed

    @property
    def seconds_to_fetch(self) -> float | None:
        """What fetching one block has taken so far, on average; None before the first."""
        counters = self.counters
        return counters.restored_s / counters.n_restored if counters.n_restored else None

    def keep(self, stored: StoredBlock) -> None:
        """Copy the block's bytes, now, and store them when there is time. A full queue drops it, see be_patient."""
        self._tell()
        if self._closed or self.failure is not None:
            self.counters.n_dropped += 1
            return
        now, block = time.time_ns(), (self._identity, stored.name)
        if self._waiting.find(stored.name) is not None or self._place(stored.name) is not None:
            self._waiting.note_use(block, now)
            self.counters.n_known += 1
            return
        assert len(stored.name) == len(stored.parent) == NAME_BYTES and 0 < len(stored.tokens) <= KV_BLOCK
        tokens = pack_tokens(stored.tokens)
        record = Record(self._identity, stored.name, stored.parent, tokens, self._block_bytes, 0)
        with memoryview(self._pool.memory) as memory, self._block(memory, stored.block) as payload:
            is_queued = self._waiting.put(record, payload, now, self._patient_until - time.monotonic())
        if is_queued:
            self._damaged.discard(stored.name)
            self.counters.n_kept += 1
        else:
            self.counters.n_dropped += 1

    def find(self, parent: bytes, ids: Sequence[int]) -> Found | None:
        """Find the stored block behind `parent` that begins with most of `ids`, of which the first 64 count."""
        self._tell()
        if self._closed:
            return None
        tokens = pack_tokens(ids[:KV_BLOCK])
        known = [(item.record.name, item.record.tokens) for item in self._waiting.children(parent)]
        with contextlib.suppress(sqlite3.Error):  # what is not found is computed
            known += self._index.neighbors(self._identity, parent, tokens)
        best: Found | None = None
        for name, theirs in known:
            n_common = n_common_tokens(tokens, theirs)
            if n_common > (best.n_common if best is not None else 0) and name not in self._damaged:
                best = Found(name, unpack_tokens(theirs), n_common)
        return best

    def fetch(self, name: bytes, tokens: Sequence[int], block: int) -> bool:
        """Read a stored block into one of the pool's. True if its tokens begin with `tokens` and every bit is right.

        After False nothing is known about what the pool's block holds.
        """
        self._tell()
        if self._closed:
            return False
        before = time.perf_counter()
        with memoryview(self._pool.memory) as memory, self._block(memory, block) as target:
            if not self._fill(name, pack_tokens(tokens), target):
                return False
        self._waiting.note_use((self._identity, name), time.time_ns())
        counters = self.counters
        counters.n_restored += 1
        counters.restored_bytes += self._block_bytes
        counters.restored_s += time.perf_counter() - before
        return True

    def be_patient(self, seconds: float) -> None:
        """For so long, let `keep` wait for room in the queue rather than drop: for when nobody is in a hurry."""
        self._patient_until = time.monotonic() + seconds

    def flush(self, patience_s: float = 10.0) -> bool:
        """Wait until all that was kept is stored and would survive a power cut; False if it was not, or not in time."""
        is_done = self._waiting.drain(patience_s)
        self._tell()
        return is_done and self.failure is None

    def close(self, patience_s: float = 10.0) -> bool:
        """Flush and let go of the directory; what is not stored in time is lost. Closing twice is harmless."""
        if self._closed:
            return True
        self._waiting.close()
        is_done = self._writer.join(patience_s)
        if is_done:
            self._undo.close()
        self._tell()
        self._closed = True
        return is_done and self.failure is None

    def _block(self, memory: memoryview, block: int) -> memoryview:
        return memory[block * self._block_bytes : (block + 1) * self._block_bytes]

    def _place(self, name: bytes) -> Place | None:
        if name in self._damaged:
            return None
        try:
            return self._index.place(self._identity, name)
        except sqlite3.Error:
            return None

    def _fill(self, name: bytes, tokens: bytes, target: memoryview) -> bool:
        """Put a block's bytes into `target`, from the queue or from the disk."""
        item = self._waiting.find(name)
        if item is not None:
            if not item.record.tokens.startswith(tokens):
                return False
            target[:] = self._waiting.payload(item.slot)
            return True
        place = self._place(name)
        if place is None:
            return False
        try:
            record = self._read(place, target)
        except OSError as error:
            if error.errno in _PASSING:
                return False
            record = None
        if record is None or (record.identity, record.name) != (self._identity, name):
            self._forget(name)
            return False
        return record.tokens.startswith(tokens)

    def _read(self, place: Place, target: memoryview) -> Record | None:
        """Read the record at a place, its payload into `target`; None unless all of it is as it was written."""
        header = bytearray(HEADER_BYTES)
        fd = self._folder.open_to_read(place.file)
        try:
            if not self._files.read(fd, [memoryview(header), target], place.start):
                return None
        finally:
            os.close(fd)
        record = Record.from_bytes(header)
        if record is None or record.payload_bytes != len(target) or record.payload_checksum != checksum(target):
            return None
        return record

    def _forget(self, name: bytes) -> None:
        """Have a record that is not what it should be forgotten, so that its block can be stored again."""
        self.counters.n_damaged += 1
        self._damaged.add(name)
        self._waiting.note_gone((self._identity, name))

    def _tell(self) -> None:
        """Say once, on the caller's thread, that writing is over."""
        failure = self.failure
        if failure is not None and not self._told:
            self._told = True
            what = f"nothing more is stored in the KV cache at {self._folder.path}: {failure}"
            warnings.warn(what, KvDiskWarning, stacklevel=3)
