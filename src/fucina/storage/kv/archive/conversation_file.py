"""A conversation in a file, safe against a crash at any byte: records first, then the slot that counts them."""

from __future__ import annotations

import contextlib
import errno
import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fucina.core.shapes import KV_BLOCK
from fucina.errors import ConversationFileError
from fucina.storage.kv.archive.log import Log
from fucina.storage.kv.archive.opening import open_locked, sync_folder
from fucina.storage.kv.archive.record import (
    IDENTITY_BYTES,
    PAGE,
    Slot,
    Text,
    claimed_header_bytes,
    header,
    header_fault,
)
from fucina.storage.kv.archive.runs import runs_of
from fucina.storage.kv.disk.files import Files
from fucina.storage.kv.geometry import KvGeometry

#: Fills the bytes of a block, (block_bytes,) uint8, as far as the conversation has it.
BlockReader = Callable[[int, NDArray[np.uint8]], None]

_N_SLOTS = 2


class ConversationFileWarning(UserWarning):
    """A conversation file lost a part of what was said, or takes no more of it; the conversation itself goes on."""


class ConversationFile:
    """One conversation: its messages, its tokens, and the keys and values of the first `n_tokens` of them.

    `identity` names the model, 32 bytes. A file that is not there is made, for its owner only. It is locked until
    `close`. What a crash left unfinished is cut off; what is damaged is given up with a ConversationFileWarning.

    Raises ConversationFileError for a file that is something else, of another model, in use, or cannot be opened.
    After an OSError of `commit` or `forget` only `close` may be called: the file stays at its last commit.
    """

    def __init__(
        self, path: str | PathLike[str], geometry: KvGeometry, identity: bytes, *, files: Files | None = None
    ) -> None:
        assert len(identity) == IDENTITY_BYTES
        self.path = Path(path)
        self._files = files or Files()
        self._fd = open_locked(self.path)
        self._closing = weakref.finalize(self, os.close, self._fd)
        self._header = header(geometry, identity)
        start = len(self._header) + _N_SLOTS * PAGE
        self._log = Log(self._fd, self._files, geometry, start, int.from_bytes(self._header[-8:], "little"))
        try:
            if self._is_unborn(start):
                self._slot = self._make()
            else:
                self._slot, is_whole = self._read_slot()
                self._recover(is_whole)
        except OSError as error:
            self.close()
            raise ConversationFileError(self.path, f"cannot be read or written ({error}); give another file") from error
        except ConversationFileError:
            self.close()
            raise

    @property
    def messages(self) -> list[dict[str, str]]:
        """What was said, as of the last commit; a copy."""
        return [dict(message) for message in self._log.messages[: self._slot.n_messages]]

    @property
    def n_tokens(self) -> int:
        """The first tokens, those with keys and values."""
        return self._slot.n_tokens

    @property
    def ids(self) -> list[int]:
        """All tokens as of the last commit, also those without keys and values; a copy."""
        return self._log.tokens[: self.n_tokens] + self._log.rest(self.n_tokens)

    def reader(self) -> BlockReader:
        """Give a function that reads keys and values of the conversation's n-th block; it raises OSError."""
        runs = self._log.runs()

        def read(index: int, block: NDArray[np.uint8]) -> None:
            for entry in runs.get(index, ()):
                if not self._log.read_run(entry, block):
                    raise OSError(errno.EIO, "the file has become shorter")

        return read

    def commit(
        self, messages: Sequence[dict[str, str]], ids: Sequence[int], blocks: Sequence[NDArray[np.uint8]], n_tokens: int
    ) -> None:
        """Let the file hold this conversation; `blocks` hold the first `n_tokens` of `ids`, (block_bytes,) uint8 each.

        What the file has already, keys and values too, is not written again. Raises OSError.
        """
        n_same, n_told = self._n_same(ids), self._n_told(messages)
        n_tokens = max(n_same, n_tokens)
        is_told = n_told == len(messages) == self._slot.n_messages
        if n_same == n_tokens == self.n_tokens and is_told and self.ids == list(ids):
            return
        self._check_linked()
        self._shorten(n_same, n_told)
        self._log.append_text(n_told, Text(list(messages[n_told:]), n_same, n_tokens, list(ids[n_tokens:])))
        for start, end in runs_of(n_same, n_tokens):
            self._log.append_run(start, ids[start:end], blocks[start // KV_BLOCK])
        self._files.sync(self._fd)
        self._promise(self._log.end, self._log.chain, n_tokens, len(messages))

    def forget(self, n_messages: int, ids: Sequence[int]) -> None:
        """Keep the first `n_messages` messages, and the tokens that `ids` begins with, only. Raises OSError."""
        n_same, n_told = self._n_same(ids), min(n_messages, self._slot.n_messages)
        if (n_same, n_told) != (self.n_tokens, self._slot.n_messages):
            self._check_linked()
            self._shorten(n_same, n_told, always=True)

    def close(self) -> None:
        """Let others have the file. Closing twice is harmless."""
        self._closing()

    def give_up(self) -> None:
        """After an OSError: take back what was written and not committed, as far as that is possible, and close."""
        with contextlib.suppress(OSError):
            if self._closing.alive:
                self._files.truncate(self._fd, self._slot.end)
        self.close()

    # -- what there is -----------------------------------------------------------------------------------------

    def _is_unborn(self, start: int) -> bool:
        """Whether the file is empty, or was being made when it all ended: the header is written last."""
        size = os.fstat(self._fd).st_size
        if not 0 < size <= start:
            return size == 0
        front = np.frombuffer(self._front(len(self._header)), np.uint8)
        if size < start:
            return not front.any()
        header = np.frombuffer(self._header, np.uint8)
        is_torn = bool(((front == 0) | (front == header)).all())
        return is_torn and not np.array_equal(front, header)

    def _make(self) -> Slot:
        """Make an empty conversation. Raises OSError."""
        slot = Slot(1, self._log.end, 0, 0, self._log.chain)
        self._files.truncate(self._fd, 0)
        self._files.truncate(self._fd, self._log.end)
        self._files.write(self._fd, [memoryview(slot.to_bytes())], self._place(slot))
        self._files.sync(self._fd)
        self._files.write(self._fd, [memoryview(self._header)], 0)
        self._files.sync(self._fd)
        sync_folder(self.path)
        return slot

    def _read_slot(self) -> tuple[Slot, bool]:
        """The last sound commit, and whether none is damaged. Raises ConversationFileError without any."""
        front = self._front(PAGE)
        found = self._front(claimed_header_bytes(front) or PAGE)
        if (fault := header_fault(found, self._header)) is not None:
            raise ConversationFileError(self.path, fault)
        slots, n_damaged = [], 0
        for index in range(_N_SLOTS):
            place = len(self._header) + index * PAGE
            data = os.pread(self._fd, len(Slot(0, 0, 0, 0, 0).to_bytes()), place)
            slot = Slot.from_bytes(data)
            if slot is not None and self._place(slot) == place and slot.end >= self._log.end:
                slots.append(slot)
            elif any(data) or not data:
                n_damaged += 1
        if not slots:
            what = "has no sound commit left; nothing can be read from it: delete it, or give another file"
            raise ConversationFileError(self.path, what)
        if n_damaged:
            self._warn("has a damaged commit; the one before it was taken up, and the last turn may be missing")
        return max(slots), not n_damaged

    def _front(self, size: int) -> bytes:
        return os.pread(self._fd, size, 0)

    def _recover(self, is_whole: bool) -> None:
        """Read what was committed, give up what of it is damaged, and cut off what was not committed."""
        slot, log = self._slot, self._log
        log.read(slot.end)
        n_tokens, n_messages = min(slot.n_tokens, len(log.tokens)), min(slot.n_messages, len(log.messages))
        is_sound = (log.end, log.chain, n_tokens, n_messages) == (slot.end, slot.chain, *slot[2:4])
        if not is_sound:
            n_lost, n_unsaid = slot.n_tokens - n_tokens, slot.n_messages - n_messages
            self._warn(f"is damaged: the last {n_unsaid} messages and {n_lost} tokens of it were lost")
        if not (is_sound and is_whole):
            self._promise(log.end, log.chain, n_tokens, n_messages)
        if os.fstat(self._fd).st_size != log.end:
            self._files.truncate(self._fd, log.end)

    def _warn(self, what: str) -> None:
        warnings.warn(f"{self.path} {what}", ConversationFileWarning, stacklevel=2)

    # -- what becomes of it ------------------------------------------------------------------------------------

    def _n_same(self, ids: Sequence[int]) -> int:
        """How many of the file's tokens `ids` begins with."""
        return _n_common(self._log.tokens[: self.n_tokens], ids)

    def _n_told(self, messages: Sequence[dict[str, str]]) -> int:
        return _n_common(self._log.messages[: self._slot.n_messages], messages)

    def _shorten(self, n_tokens: int, n_messages: int, *, always: bool = False) -> None:
        """Cut off the records that say nothing of so many tokens and messages: first from what counts, then really."""
        n_records = self._log.n_needed(n_tokens, n_messages)
        end, chain = self._log.end_of(n_records)
        if end != self._slot.end or always:
            self._promise(end, chain, n_tokens, n_messages)
            self._files.truncate(self._fd, end)
        self._log.cut(n_records, n_tokens, n_messages)

    def _promise(self, end: int, chain: int, n_tokens: int, n_messages: int) -> None:
        """Make what was written and synced the state of the file. Raises OSError."""
        slot = Slot(self._slot.sequence + 1, end, n_tokens, n_messages, chain)
        self._files.write(self._fd, [memoryview(slot.to_bytes())], self._place(slot))
        self._files.sync(self._fd)
        self._slot = slot

    def _place(self, slot: Slot) -> int:
        return len(self._header) + slot.sequence % _N_SLOTS * PAGE

    def _check_linked(self) -> None:
        if os.fstat(self._fd).st_nlink == 0:
            raise OSError(errno.ENOENT, "the file was deleted")


def _n_common(ours: Sequence[object], theirs: Sequence[object]) -> int:
    """How many elements two sequences have in common from their beginning."""
    differs = (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    return next(differs, min(len(ours), len(theirs)))
