"""What a start does first: make index and segments agree, whatever happened to either of them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import warnings

from fucina.errors import ConfigError
from fucina.storage.kv.disk.files import Files
from fucina.storage.kv.disk.folder import Folder
from fucina.storage.kv.disk.index import Index, NewRow
from fucina.storage.kv.disk.record import HEADER_BYTES, SEGMENT_HEADER, Record


class KvDiskWarning(UserWarning):
    """Blocks on disk were lost, or no more are stored; answers stay what they are, and take longer."""


def open_index(folder: Folder, files: Files) -> Index:
    """Open the index and make it agree with the segments. Raises ConfigError if none can be made.

    An index that cannot be read is left behind, and made anew from the segments' own records.
    """
    try:
        with folder.locked():
            index = _readable_index(folder)
            try:
                _reconcile(folder, index, files)
            except BaseException:
                index.close()
                raise
            return index
    except (OSError, sqlite3.Error) as error:
        expected = f"a directory with room for an index ({error})"
        raise ConfigError("kv_cache_dir", got=str(folder.path), expected=expected) from error


def _readable_index(folder: Folder) -> Index:
    path = folder.index()
    try:
        return Index(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise  # locked, or no room: not the file's fault, as an unknown format is
        what = f"{path}, an index of the KV cache, cannot be read ({error}): a new one is made, and you may delete it"
        warnings.warn(what, KvDiskWarning, stacklevel=5)
        return Index(folder.begin_index())


def _reconcile(folder: Folder, index: Index, files: Files) -> None:
    """Forget segments that are gone, cut what was never promised, take in what the index does not know."""
    known, present = index.segments(), folder.segments()
    for file in known.keys() - set(present):
        index.drop_segment(known[file][0])
    for file in present:
        try:
            fd = folder.take(file)
        except OSError:
            continue  # a link, or somebody else's: left alone
        if fd is None:
            continue  # another process writes it and knows what it does
        with contextlib.closing(os.fdopen(fd, "rb", buffering=0)):
            if file not in known:
                _take_in(folder, index, files, file, fd)
                continue
            segment = known[file][0]
            end = index.end(segment)  # not as it was before we held it: somebody may have added to it
            n_bytes = os.fstat(fd).st_size
            if end is None:
                continue
            if n_bytes > end:
                files.truncate(fd, end)
            elif n_bytes < end:
                index.cut_segment(segment, n_bytes)


def _take_in(folder: Folder, index: Index, files: Files, file: str, fd: int) -> None:
    """Enter a segment that the index does not know, up to its first record that is not whole."""
    found = os.fstat(fd)
    beginning = os.pread(fd, len(SEGMENT_HEADER), 0)
    if beginning != SEGMENT_HEADER:
        if beginning == SEGMENT_HEADER[: found.st_size]:
            folder.remove(file)  # we were killed when we made it
        return  # no segment: left alone
    records, place = [], len(SEGMENT_HEADER)
    header = bytearray(HEADER_BYTES)
    while files.read(fd, [memoryview(header)], place):
        record = Record.from_bytes(header)
        if record is None or place + HEADER_BYTES + record.payload_bytes > found.st_size:
            break
        records.append((record, place))
        place += HEADER_BYTES + record.payload_bytes
    files.truncate(fd, place)
    segment = index.add_segment(file, place)
    rows = [NewRow(record, segment, start, found.st_mtime_ns) for record, start in records]
    index.commit(rows)
