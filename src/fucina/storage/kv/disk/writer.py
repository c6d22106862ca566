"""The thread that appends blocks to segments: bytes first, then the row that promises them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from dataclasses import dataclass, field

from fucina.storage.kv.disk.files import Files
from fucina.storage.kv.disk.folder import Folder
from fucina.storage.kv.disk.index import Index, NewRow
from fucina.storage.kv.disk.record import HEADER_BYTES, SEGMENT_HEADER, checksum
from fucina.storage.kv.disk.waiting import Batch, Item, Waiting

#: Uses are stored with the next block, or after so long.
_USES_WAIT_S = 5.0


@dataclass(slots=True)
class _Segment:
    """The file we append to. Rows are promised up to `committed`; what lies from there to `end` is only written."""

    id: int
    fd: int
    committed: int
    end: int
    rows: list[NewRow] = field(default_factory=list)


class Writer:
    """Stores what waits until it is told to stop, or until something goes wrong; then `failure` says what."""

    def __init__(
        self, waiting: Waiting, folder: Folder, index: Index, files: Files, capacity_bytes: int, segment_bytes: int
    ) -> None:
        self._waiting, self._folder, self._index, self._files = waiting, folder, index, files
        self._capacity_bytes, self._segment_bytes = capacity_bytes, segment_bytes
        self._segment: _Segment | None = None
        #: Why nothing is stored any more.
        self.failure: Exception | None = None
        self.n_stored = self.n_crowded_out = self.n_segments_removed = 0
        self._thread = threading.Thread(target=self._run, name="fucina-kv-disk", daemon=True)
        self._thread.start()

    def join(self, patience_s: float) -> bool:
        """Wait for the thread's end; False if it takes longer."""
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (batch := self._waiting.take(_USES_WAIT_S)) is not None:
            try:
                if self.failure is None:
                    self._store(batch)
            except (OSError, sqlite3.Error) as error:
                self._give_up(error)
            finally:
                self._waiting.done(batch)
        self._leave_segment()

    def _store(self, batch: Batch) -> None:
        if self._segment is not None and os.fstat(self._segment.fd).st_nlink == 0:
            self._leave_segment()  # somebody cleans up by hand
        if batch.gone:  # first, since what is damaged may come again in this very batch
            self._index.commit(gone=batch.gone)
        for item in batch.items:
            if not self._index.covers(item.record):
                self._append(item)
        self._commit(batch)

    def _append(self, item: Item) -> None:
        """Write one record behind the others, in a segment that has room."""
        n_bytes = HEADER_BYTES + item.record.payload_bytes
        if self._segment is not None and self._segment.end + n_bytes > self._segment_bytes:
            self._commit(Batch())
            self._leave_segment()
        if not self._make_room(n_bytes):
            self.n_crowded_out += 1
            return
        segment = self._segment = self._segment or self._enter_segment(n_bytes)
        payload = self._waiting.payload(item.slot)
        record = item.record._replace(payload_checksum=checksum(payload))
        self._files.write(segment.fd, [memoryview(record.to_bytes()), payload], segment.end)
        segment.rows.append(NewRow(record, segment.id, segment.end, item.when))
        segment.end += n_bytes

    def _commit(self, batch: Batch) -> None:
        """Sync what was written, then promise it."""
        segment = self._segment
        if segment is None or not segment.rows:
            if batch.used:
                self._index.commit(used=batch.used)
            return
        self._files.sync(segment.fd)
        self._index.commit(segment.rows, {segment.id: segment.end}, batch.used)
        self.n_stored += len(segment.rows)
        segment.rows, segment.committed = [], segment.end

    def _enter_segment(self, n_bytes: int) -> _Segment:
        """Go on with a segment that nobody writes and that has room, or begin one."""
        with self._folder.locked():
            for file, (segment, end) in self._index.segments().items():
                if end + n_bytes <= self._segment_bytes and (fd := self._take(file)) is not None:
                    if os.fstat(fd).st_size >= end:
                        self._files.truncate(fd, end)
                        return _Segment(segment, fd, end, end)
                    os.close(fd)
            file, fd = self._folder.create()
            try:
                self._files.write(fd, [memoryview(SEGMENT_HEADER)], 0)
                self._files.sync(fd)
                self._folder.sync()
                end = len(SEGMENT_HEADER)
                return _Segment(self._index.add_segment(file, end), fd, end, end)
            except BaseException:
                os.close(fd)
                raise

    def _take(self, file: str) -> int | None:
        try:
            return self._folder.take(file)
        except OSError:
            return None  # gone, or a link: not for us

    def _leave_segment(self) -> None:
        """Let others have the segment, without what was never promised."""
        if self._segment is not None:
            with contextlib.suppress(OSError):
                if self._segment.end != self._segment.committed:
                    self._files.truncate(self._segment.fd, self._segment.committed)
            os.close(self._segment.fd)
            self._segment = None

    def _make_room(self, n_bytes: int) -> bool:
        """Remove the coldest segments that nobody writes until so many bytes fit; False if they cannot."""
        total = self._index.total_bytes() + n_bytes
        if self._segment is not None:
            total += self._segment.end - self._segment.committed
        for segment, file, end in self._index.coldest() if total > self._capacity_bytes else ():
            if total <= self._capacity_bytes:
                break
            if self._remove(segment, file):
                total -= end
        return total <= self._capacity_bytes

    def _remove(self, segment: int, file: str) -> bool:
        """Delete a segment, its rows first; False if somebody writes it, we for instance."""
        with self._folder.locked():
            try:
                fd = self._folder.take(file)
            except OSError:
                fd = -1  # gone, or a link that is not ours to delete
            if fd is None:
                return False
            self._index.drop_segment(segment)
            if fd >= 0:
                self._folder.remove(file)
                os.close(fd)
            self.n_segments_removed += 1
            return True

    def _give_up(self, error: Exception) -> None:
        self.failure = error
        self._waiting.close()
        self._leave_segment()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            with contextlib.suppress(OSError), self._folder.locked():
                self._folder.begin_index()  # what we have is damaged: the next start fills a new one
