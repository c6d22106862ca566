"""The pieces of a vocabulary as bytes, left in one buffer: a quarter of a million of them cost no Python object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fucina.storage.gguf import StringArray

#: Numbers of the piece types in GGUF files.
UNDEFINED, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(7)


class Pieces(Sequence[bytes]):
    """Piece i as UTF-8 bytes lies at storage[starts[i]:ends[i]]; `starts` and `ends` are (vocab,) int64."""

    def __init__(self, storage: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self.storage, self.starts, self.ends = storage, starts, ends

    @classmethod
    def of(cls, strings: StringArray | Iterable[str]) -> Pieces:
        """Take the strings of a GGUF array, or any others."""
        if isinstance(strings, StringArray):
            return cls(strings.data.tobytes(), strings.starts, strings.ends)
        encoded = [string.encode() for string in strings]
        ends = np.cumsum([len(piece) for piece in encoded], dtype=np.int64)
        return cls(b"".join(encoded), np.append(np.zeros(1, np.int64), ends)[:-1], ends)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        """Piece `index` as it stands in the file."""
        if isinstance(index, slice):
            return Pieces(self.storage, self.starts[index], self.ends[index])
        return self.storage[self.starts[index] : self.ends[index]]

    def text(self, index: int) -> str:
        """Piece `index` decoded."""
        return self[index].decode()

    def to_list(self) -> list[str]:
        """All pieces decoded, the fast way."""
        return [piece.decode() for piece in self.to_bytes()]

    def to_bytes(self) -> list[bytes]:
        """All pieces as they stand in the file."""
        storage = self.storage
        return [storage[a:b] for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]

    def starting_with(self, letters: bytes, *, longest: int) -> list[int]:
        """Indices of the pieces that start with one of the ASCII `letters` and have at most `longest` bytes."""
        first = np.frombuffer(self.storage + b"\0", dtype=np.uint8)[self.starts]
        n_bytes = self.ends - self.starts
        wanted = np.isin(first, np.frombuffer(letters, dtype=np.uint8)) & (n_bytes > 0) & (n_bytes <= longest)
        indices: list[int] = np.flatnonzero(wanted).tolist()
        return indices
