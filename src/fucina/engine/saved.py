"""A conversation's file beside its cache: what is read back into blocks, and what a turn leaves behind."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from hashlib import blake2b
from os import PathLike
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from fucina.core.shapes import KV_BLOCK
from fucina.engine.dispatch import Dispatcher
from fucina.errors import ConfigError, ConversationFileError, KvPoolFull
from fucina.storage.kv.archive.conversation_file import ConversationFile, ConversationFileWarning
from fucina.storage.kv.archive.record import IDENTITY_BYTES
from fucina.storage.kv.geometry import KvGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.prefix import PrefixCache
from fucina.storage.kv.sequence import KvSequence


def open_saved(
    dispatcher: Dispatcher, path: str | PathLike[str], geometry: KvGeometry, identity: bytes, salt: str
) -> Saved:
    """Open or make the file of a conversation. Raises ConversationFileError."""
    name = blake2b(identity, digest_size=IDENTITY_BYTES).digest()
    return Saved(dispatcher, ConversationFile(path, geometry, name), salt)


class Saved:
    """Keeps a conversation in its file. After `resume` nothing raises: when writing fails, a warning says so once."""

    def __init__(self, dispatcher: Dispatcher, file: ConversationFile, salt: str) -> None:
        self._dispatcher, self._file, self._salt = dispatcher, file, salt
        self._lock = Lock()  # a turn may end in one thread while another closes
        self._is_over = False

    def resume(self, opening: list[dict[str, str]]) -> tuple[list[dict[str, str]], list[int]]:
        """Give messages and tokens of the file; its keys and values are in the cache then, as far as there is room.

        Without any turn in the file it begins with `opening`. Raises ConfigError, ConversationFileError.
        """
        try:
            messages, ids = self._file.messages, self._file.ids
            if opening and opening != messages[:1]:
                if any(message["role"] != "system" for message in messages):
                    expected = f"none, or the one that {self._file.path} begins with"
                    raise ConfigError("system", got=opening[0]["content"], expected=expected)
                messages, ids = opening, []
            self._restore(ids[: self._file.n_tokens])
        except OSError as error:
            self.close()
            raise ConversationFileError(self._file.path, f"cannot be read ({error}); give another file") from error
        except BaseException:
            self.close()
            raise
        self.save(messages, ids)
        return messages, ids

    def save(self, messages: Sequence[dict[str, str]], ids: Sequence[int]) -> None:
        """Commit the conversation with the keys and values that are kept of it; the others need not wait for the disk.

        Blocks are written as they lie in the pool: what has a second owner is never written to.
        """
        with self._lock:
            if self._is_over:
                return
            kv = self._kept(ids)
            try:
                blocks = [] if kv is None else [_blocks(kv.pool)[block] for block in kv.blocks]
                self._file.commit(messages, ids, blocks, 0 if kv is None else kv.length)
            except OSError as error:
                self._give_up(error)
            finally:
                if kv is not None:
                    with self._dispatcher.exclusive():
                        kv.close()

    def forget(self, n_messages: int, ids: Sequence[int]) -> None:
        """Commit that only so many messages count, and of the tokens only those that `ids` begins with."""
        with self._lock:
            if self._is_over:
                return
            try:
                self._file.forget(n_messages, ids)
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        """Let others have the file. Closing twice is harmless."""
        with self._lock:
            self._is_over = True
            self._file.close()

    def _kept(self, ids: Sequence[int]) -> KvSequence | None:
        """What the cache keeps of `ids`, held together until it is closed; None if nobody can tell now."""
        with self._dispatcher.prefixes() as prefixes:
            return None if prefixes is None else prefixes.begin(ids, len(ids), self._salt)

    def _restore(self, ids: Sequence[int]) -> None:
        with self._dispatcher.prefixes() as prefixes:
            if prefixes is not None:
                _restore(prefixes, ids, self._salt, self._file)

    def _give_up(self, error: OSError) -> None:
        self._is_over = True
        self._file.give_up()
        what = f"{self._file.path} could not be written ({error}): it keeps what it had, and the conversation goes on"
        warnings.warn(what, ConversationFileWarning, stacklevel=4)


def _restore(prefixes: PrefixCache, ids: Sequence[int], salt: str, file: ConversationFile) -> None:
    """Read the blocks that hold `ids` and are not in the cache yet, from the first on, while there is room for them."""
    read, kv = file.reader(), prefixes.begin(ids, len(ids), salt)
    try:
        if kv.length < len(ids):
            kv.truncate(kv.length // KV_BLOCK * KV_BLOCK)
            kv.trim()
        while kv.length < len(ids):
            n_rows = min(KV_BLOCK, len(ids) - kv.length)
            kv.reserve(n_rows)
            read(kv.length // KV_BLOCK, _blocks(kv.pool)[kv.blocks[-1]])
            kv.advance(n_rows)
    except KvPoolFull:
        pass
    finally:
        prefixes.insert(ids, kv.blocks, kv.length, salt)
        kv.close()


def _blocks(pool: KvPool) -> NDArray[np.uint8]:
    """The pool's memory, (capacity, block_bytes)."""
    return np.frombuffer(pool.memory, np.uint8).reshape(pool.capacity, pool.geometry.block_bytes)
