"""Arrays of strings: found and checked a window at a time with NumPy, decoded only when asked."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fucina.errors import BadHeader
from fucina.storage.gguf.cursor import Cursor

_PREFIX_BYTES = 8
_WINDOW_BYTES = 1 << 20
#: Fewer strings than this are walked one by one; it is also the first stride after a failed guess.
_FEW_STRINGS = 1024
_MOST_WALKED = 1 << 16


class StringArray(Sequence[str]):
    """Strings of a GGUF array, left where they are in the mapped file; checked to be whole and UTF-8 when read.

    `data` holds the bytes of all strings, (n,) uint8 read-only; string i lies at data[starts[i]:ends[i]], both int64.
    """

    def __init__(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self.data, self.starts, self.ends = data, starts, ends

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        """String `index`, decoded; for a slice another array over the same bytes."""
        if isinstance(index, slice):
            return StringArray(self.data, self.starts[index], self.ends[index])
        return self.raw(index).decode()

    def __iter__(self) -> Iterator[str]:
        return (raw.decode() for raw in self._each())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StringArray):
            return len(self) == len(other) and all(a == b for a, b in zip(self._each(), other._each(), strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"StringArray([{shown}{', ...' if len(self) > 3 else ''}], {len(self)} strings)"

    def raw(self, index: int) -> bytes:
        """The UTF-8 bytes of string `index`."""
        return self.data[self.starts[index] : self.ends[index]].tobytes()

    def to_bytes_list(self) -> list[bytes]:
        """All strings as UTF-8 bytes, the fast way."""
        return list(self._each())

    def to_list(self) -> list[str]:
        """All strings decoded, the fast way."""
        return [raw.decode() for raw in self._each()]

    def _each(self) -> Iterator[bytes]:
        everything = self.data.tobytes()
        return (everything[a:b] for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True))


def read_strings(cursor: Cursor, n_strings: int, what: str) -> StringArray:
    """Read `n_strings` length-prefixed strings; `n_strings` was checked against the limits before.

    Raises TruncatedFile for a string past the end, BadHeader for one that is not UTF-8 or passes the header limit.
    """
    cursor.need(n_strings * _PREFIX_BYTES, what)
    first = cursor.position
    found: list[NDArray[np.int64]] = []
    n_found, stride = 0, _FEW_STRINGS
    while n_found < n_strings:
        wanted = n_strings - n_found
        begin = cursor.position
        starts = _guess(cursor, wanted) if wanted >= _FEW_STRINGS else np.empty(0, np.int64)
        if len(starts) == 0:
            # the stride grows, so that a file made to defeat the guess cannot make us guess often
            starts = _walk(cursor, min(wanted, stride), what)
            stride = min(2 * stride, _MOST_WALKED)
        _check_utf8(cursor, begin, starts, what, n_found)
        found.append(starts)
        n_found += len(starts)
    starts = np.concatenate(found) if found else np.empty(0, np.int64)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:] - _PREFIX_BYTES
    ends[-1:] = cursor.position
    return StringArray(cursor.data[first : cursor.position], starts - first, ends - first)


def _guess(cursor: Cursor, wanted: int) -> NDArray[np.int64]:
    """Starts of strings in the next window, found all at once; empty when the guess does not hold.

    A length below 65,536 ends in six zero bytes, which text does not contain. Where the places that look like lengths
    form an unbroken chain from the current position (each string ends where the next length begins), they are right.
    """
    window = cursor.data[cursor.position : min(cursor.end, cursor.position + _WINDOW_BYTES)]
    zero = window == 0
    two = zero[:-1] & zero[1:]
    six = two[:-4] & two[2:-2] & two[4:]
    lengths_at = np.flatnonzero(six) - 2
    if len(lengths_at) < 2:
        return np.empty(0, np.int64)
    # a length below 256 matches one byte early as well: of neighbors the last is meant
    lengths_at = lengths_at[np.append(lengths_at[1:] != lengths_at[:-1] + 1, True)]
    if lengths_at[0] != 0:
        return np.empty(0, np.int64)
    lengths_at = lengths_at[:wanted]
    next_at = lengths_at + _PREFIX_BYTES + window[lengths_at] + (window[lengths_at + 1].astype(np.int64) << 8)
    broken = np.flatnonzero(next_at[:-1] != lengths_at[1:])
    n_sure = int(broken[0]) + 1 if len(broken) else len(lengths_at)
    if next_at[n_sure - 1] > cursor.end - cursor.position:
        n_sure -= 1  # leave it to the walk to say what is wrong with the last one
    if n_sure < min(wanted, _FEW_STRINGS):
        return np.empty(0, np.int64)
    starts: NDArray[np.int64] = lengths_at[:n_sure] + (cursor.position + _PREFIX_BYTES)
    cursor.position += int(next_at[n_sure - 1])
    return starts


def _walk(cursor: Cursor, n_strings: int, what: str) -> NDArray[np.int64]:
    """Starts of the next `n_strings` strings, one after the other."""
    view, end, position = cursor.view, cursor.end, cursor.position
    starts = [0] * n_strings
    for i in range(n_strings):
        start = position + _PREFIX_BYTES
        position = start + int.from_bytes(view[position:start], "little")
        if position > end:
            cursor.position = start - _PREFIX_BYTES
            cursor.need(position - cursor.position, f"a string in {what}")
        starts[i] = start
    cursor.position = position
    return np.array(starts, dtype=np.int64)


def _check_utf8(cursor: Cursor, begin: int, starts: NDArray[np.int64], what: str, n_before: int) -> None:
    """Check the strings from `begin` to the cursor in one go, their lengths taken as text too.

    A length below 128 is eight ASCII characters, so it neither breaks nor mends what stands beside it; others are
    blanked first.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_blanked = np.diff(starts, append=cursor.position + _PREFIX_BYTES) - _PREFIX_BYTES >= 128
    blanked = (starts[is_blanked][:, None] - np.arange(1, _PREFIX_BYTES + 1)).ravel()
    for at in range(begin, cursor.position, _WINDOW_BYTES):
        to = min(cursor.position, at + _WINDOW_BYTES)
        piece = cursor.data[at:to].copy()
        piece[blanked[(blanked >= at) & (blanked < to)] - at] = 0
        n_pending = len(decoder.getstate()[0])  # an unfinished code point of the piece before
        try:
            decoder.decode(piece.data, final=to == cursor.position)
        except UnicodeDecodeError as error:
            wrong_at = at - n_pending + error.start
            index = n_before + max(0, int(np.searchsorted(starts, wrong_at, side="right")) - 1)
            raise BadHeader(cursor.path, f"string {index} of {what} is not UTF-8") from error
