"""The records of a conversation file, one behind the other, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fucina.core.shapes import KV_BLOCK
from fucina.storage.kv.archive.record import (
    RECORD_BYTES,
    RUN,
    TEXT,
    TOKEN_BYTES,
    RecordHeader,
    Text,
    checksum,
    pack_tokens,
    unpack_tokens,
)
from fucina.storage.kv.archive.runs import Cutter, run_bytes
from fucina.storage.kv.disk.files import Files
from fucina.storage.kv.geometry import KvGeometry


class Entry(NamedTuple):
    """A record in the file: `n_items` positions, or messages, from `first` on; `chain` is the log's behind it."""

    kind: int
    first: int
    n_items: int
    payload: int
    end: int
    chain: int


class Log:
    """Records from `start` on. A record takes the place of all that lies from its first position or message on.

    So the tokens, and the messages, are always a prefix of what they were and something new. Not thread-safe.
    """

    def __init__(self, fd: int, files: Files, geometry: KvGeometry, start: int, chain: int) -> None:
        self._fd, self._files, self._geometry, self._cutter = fd, files, geometry, Cutter(geometry)
        self._start, self._first_chain = start, chain
        self._entries: list[Entry] = []
        self.tokens: list[int] = []
        self.messages: list[dict[str, str]] = []
        self._text = Text([], 0, 0, [])  # the last one
        self._reached = 0  # by the runs behind it

    @property
    def end(self) -> int:
        """Where the next record goes."""
        return self._entries[-1].end if self._entries else self._start

    @property
    def chain(self) -> int:
        """The last record's checksum, which depends on every record before."""
        return self._entries[-1].chain if self._entries else self._first_chain

    def rest(self, n_tokens: int) -> list[int]:
        """Tokens behind the first `n_tokens` that have no keys and values."""
        return self._text.rest if n_tokens == self._text.at == self._reached else []

    def read(self, end: int) -> None:
        """Read records up to `end`, or to the first that is not sound. Raises OSError."""
        while self.end < end and self._read_one(end):
            pass

    def append_text(self, first: int, text: Text) -> None:
        """Write messages, to be the ones from `first` on. Raises OSError."""
        payload = memoryview(text.to_bytes())
        self._append(TEXT, first, len(text.messages), [payload])
        self._take_text(first, text)

    def append_run(self, first: int, tokens: Sequence[int], block: NDArray[np.uint8]) -> None:
        """Write a run, to be the positions from `first` on, out of its block's bytes. Raises OSError."""
        start = first % KV_BLOCK
        run = self._cutter.cut(block, start, start + len(tokens))
        self._append(RUN, first, len(tokens), [memoryview(pack_tokens(tokens)), run.data])
        self._take_run(first, tokens)

    def n_needed(self, n_tokens: int, n_messages: int) -> int:
        """Records from the first to the last that say something of so many first tokens and messages."""
        needs = {RUN: n_tokens, TEXT: n_messages}
        needed = (index for index in reversed(range(len(self._entries))) if self._says(index, needs))
        return next(needed, -1) + 1

    def end_of(self, n_records: int) -> tuple[int, int]:
        """Where so many records end, and their chain."""
        last = self._entries[n_records - 1] if n_records else None
        return (last.end, last.chain) if last else (self._start, self._first_chain)

    def cut(self, n_records: int, n_tokens: int, n_messages: int) -> None:
        """Keep so many records, and of what they say so many tokens and messages. The file is the caller's to cut."""
        if n_records < len(self._entries):
            self._text = Text([], 0, 0, [])
        del self._entries[n_records:]
        del self.tokens[n_tokens:], self.messages[n_messages:]

    def runs(self) -> dict[int, list[Entry]]:
        """The runs of each block, in order."""
        runs: dict[int, list[Entry]] = {}
        for entry in self._entries:
            if entry.kind == RUN:
                runs.setdefault(entry.first // KV_BLOCK, []).append(entry)
        return runs

    def read_run(self, entry: Entry, block: NDArray[np.uint8]) -> bool:
        """Put a run into a block's bytes; False if the file is shorter by now. Raises OSError."""
        run = np.empty(run_bytes(self._geometry, entry.n_items), np.uint8)
        if not self._files.read(self._fd, [run.data], entry.payload + entry.n_items * TOKEN_BYTES):
            return False
        start = entry.first % KV_BLOCK
        self._cutter.put(run, block, start, start + entry.n_items)
        return True

    def _says(self, index: int, needs: dict[int, int]) -> bool:
        entry = self._entries[index]
        return entry.first < needs[entry.kind]

    def _append(self, kind: int, first: int, n_items: int, parts: list[memoryview]) -> None:
        n_bytes = sum(part.nbytes for part in parts)
        header = RecordHeader(kind, first, n_items, n_bytes, 0)
        chain = header.seed(self.chain)
        for part in parts:
            chain = checksum(part, chain)
        start = self.end
        self._files.write(self._fd, [memoryview(header._replace(checksum=chain).to_bytes()), *parts], start)
        payload = start + RECORD_BYTES
        self._entries.append(Entry(kind, first, n_items, payload, payload + n_bytes, chain))

    def _read_one(self, end: int) -> bool:
        """Read the next record; False if there is none that is sound and fits."""
        payload_at = self.end + RECORD_BYTES
        head = bytearray(RECORD_BYTES)
        if payload_at > end or not self._files.read(self._fd, [memoryview(head)], self.end):
            return False
        header = RecordHeader.from_bytes(bytes(head))
        n_tokens_bytes = self._token_bytes(header)
        if n_tokens_bytes is None or payload_at + header.payload_bytes > end:
            return False
        payload = np.empty(header.payload_bytes, np.uint8).data
        if not self._files.read(self._fd, [payload], payload_at):
            return False
        chain = header.seed(self.chain)
        for part in (payload[:n_tokens_bytes], payload[n_tokens_bytes:]) if header.kind == RUN else (payload,):
            chain = checksum(part, chain)
        if chain != header.checksum:
            return False
        if header.kind == RUN:
            self._take_run(header.first, unpack_tokens(payload[:n_tokens_bytes]))
        else:
            text = Text.from_bytes(bytes(payload))
            if text is None or len(text.messages) != header.n_items:
                return False
            self._take_text(header.first, text)
        last = payload_at + header.payload_bytes
        self._entries.append(Entry(header.kind, header.first, header.n_items, payload_at, last, chain))
        return True

    def _token_bytes(self, header: RecordHeader) -> int | None:
        """How many bytes of the payload are tokens; None for a header that cannot stand here."""
        if header.kind == TEXT:
            return 0 if header.first <= len(self.messages) else None
        n_bytes = header.n_items * TOKEN_BYTES
        fits = 0 < header.n_items <= KV_BLOCK - header.first % KV_BLOCK and header.first <= len(self.tokens)
        whole = header.payload_bytes == n_bytes + run_bytes(self._geometry, header.n_items)
        return n_bytes if header.kind == RUN and fits and whole else None

    def _take_run(self, first: int, tokens: Sequence[int]) -> None:
        self.tokens[first:] = tokens
        if first == self._reached:
            self._reached += len(tokens)

    def _take_text(self, first: int, text: Text) -> None:
        self.messages[first:] = text.messages
        self._text, self._reached = text, text.since
