"""Arrays of strings: found and checked a window at a time with NumPy, decoded only when asked.

A string is a length in eight bytes, then its text, so where one begins follows from the one before. Walking them one by
one takes a second for the arrays that a hostile file may hold, hence the detour: a text without NUL tells by its zero
bytes where lengths lie. Such places are only believed where they form an unbroken chain from a place that is sure.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fucina.errors import BadHeader
from fucina.storage.gguf import limits
from fucina.storage.gguf.cursor import Cursor

_PREFIX_BYTES = 8
_WINDOW_BYTES = 1 << 18
#: Up to this many strings are walked one by one: finding them all at once would cost more.
_FEW_STRINGS = 256
#: Where few strings are left, the window is this many bytes for each of them.
_TYPICAL_BYTES = 64


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


class StringReader:
    """Reads the arrays of strings of one header, and keeps count of what they cost together."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._strings_left = limits.STRINGS
        self._odd_left = limits.ODD_STRINGS

    def read(self, n_strings: int, what: str) -> StringArray:
        """The next `n_strings` length-prefixed strings.

        Raises TruncatedFile for a string past the end, BadHeader for one that is not UTF-8 and for too many.
        """
        cursor = self._cursor
        if n_strings > self._strings_left:
            raise BadHeader(
                cursor.path, f"{what} has {n_strings} strings; all arrays together may have {limits.STRINGS}"
            )
        self._strings_left -= n_strings
        cursor.need(n_strings * _PREFIX_BYTES, what)
        first = cursor.position
        starts = np.empty(n_strings, np.int64)
        if n_strings <= _FEW_STRINGS:
            _walk(cursor, starts, what)
            _check_utf8(cursor, first, starts, what, 0)
        else:
            self._read_many(starts, what)
        ends = np.empty_like(starts)
        ends[:-1] = starts[1:] - _PREFIX_BYTES
        ends[-1:] = cursor.position
        starts -= first
        ends -= first
        return StringArray(cursor.data[first : cursor.position], starts, ends)

    def _read_many(self, starts: NDArray[np.int64], what: str) -> None:
        """Fill `starts` (places of the texts in the file) window by window, all checked."""
        n_found = 0
        while n_found < len(starts):
            n_before, begin = n_found, self._cursor.position
            n_found = self._read_window(starts, n_found, what)
            _check_utf8(self._cursor, begin, starts[n_before:n_found], what, n_before)

    def _read_window(self, starts: NDArray[np.int64], n_found: int, what: str) -> int:
        """Find the strings whose lengths lie in the next window; returns how many are found by now."""
        cursor = self._cursor
        cursor.need(_PREFIX_BYTES, what)
        base = cursor.position
        window_bytes = min(_WINDOW_BYTES, _TYPICAL_BYTES * (len(starts) - n_found))
        window = cursor.data[base : min(cursor.end, base + window_bytes)]
        likely = _likely_lengths(window)
        lengths = window[likely].astype(np.int64) + (window[likely + 1].astype(np.int64) << 8)
        after = likely + _PREFIX_BYTES + lengths
        chain_ends = np.append(np.flatnonzero(after[:-1] != likely[1:]), len(likely) - 1)
        at = 0
        while n_found < len(starts) and at + _PREFIX_BYTES <= len(window):
            i = int(np.searchsorted(likely, at))
            if i < len(likely) and likely[i] == at:
                chain = likely[i : int(chain_ends[np.searchsorted(chain_ends, i)]) + 1][: len(starts) - n_found]
                next_at = int(after[i + len(chain) - 1])
            else:
                chain = np.array([at])
                next_at = at + _PREFIX_BYTES + int.from_bytes(window[at : at + _PREFIX_BYTES].tobytes(), "little")
                self._count_odd(what)
            starts[n_found : n_found + len(chain)] = chain + (base + _PREFIX_BYTES)
            n_found += len(chain)
            cursor.position = base + int(chain[-1])
            cursor.need(base + next_at - cursor.position, f"string {n_found - 1} of {what}")
            cursor.position, at = base + next_at, next_at
        return n_found

    def _count_odd(self, what: str) -> None:
        self._odd_left -= 1
        if self._odd_left < 0:
            raise BadHeader(
                self._cursor.path,
                f"{what} brings the strings that begin or end in NUL or pass 64 KiB above {limits.ODD_STRINGS}",
            )


def _walk(cursor: Cursor, starts: NDArray[np.int64], what: str) -> None:
    """Fill `starts` with the next strings, one after the other."""
    view, end, position = cursor.view, cursor.end, cursor.position
    for i in range(len(starts)):
        start = position + _PREFIX_BYTES
        next_position = start + int.from_bytes(view[position:start], "little")
        if next_position > end:
            cursor.position = position
            cursor.need(next_position - position, f"string {i} of {what}")
        starts[i] = start
        position = next_position
    cursor.position = position


def _likely_lengths(window: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Where lengths below 65,536 lie, if texts hold no NUL: ascending offsets, complete and right only in that case.

    Then runs of zeros of length 6 end a length of 256 and more, runs of 7 end a smaller one, and runs of 8, 16, 24, ...
    are lengths of empty strings.
    """
    is_zero = np.zeros(len(window) + 2, dtype=np.int8)
    is_zero[1:-1] = window == 0
    edges = np.diff(is_zero)
    begin, end = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    n_zeros = end - begin
    is_cut = end == len(window)  # such a run may go on
    n_empty = np.where((n_zeros % _PREFIX_BYTES == 0) | is_cut, n_zeros // _PREFIX_BYTES, 0)
    empty = np.repeat(begin - _PREFIX_BYTES * (np.cumsum(n_empty) - n_empty), n_empty)
    empty += _PREFIX_BYTES * np.arange(len(empty))
    others = np.concatenate([begin[n_zeros == 6] - 2, begin[n_zeros == 7] - 1])
    return np.sort(np.concatenate([empty, others[others >= 0]]))


def _check_utf8(cursor: Cursor, begin: int, starts: NDArray[np.int64], what: str, n_before: int) -> None:
    """Check the strings from `begin` to the cursor in one go, their lengths taken as text too.

    A length below 128 is eight ASCII characters, so it neither breaks nor mends what stands beside it; others are
    blanked first.
    """
    if not len(starts):
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_long = np.diff(starts, append=cursor.position + _PREFIX_BYTES) - _PREFIX_BYTES >= 128
    blanked = (starts[is_long][:, None] - np.arange(1, _PREFIX_BYTES + 1)).ravel()
    for at in range(begin, cursor.position, _WINDOW_BYTES):
        to = min(cursor.position, at + _WINDOW_BYTES)
        piece = cursor.data[at:to].copy()
        piece[blanked[(blanked >= at) & (blanked < to)] - at] = 0
        n_pending = len(decoder.getstate()[0])  # an unfinished code point of the piece before
        try:
            decoder.decode(piece.data, final=to == cursor.position)
        except UnicodeDecodeError as error:
            wrong_at = at - n_pending + error.start
            index = max(0, int(np.searchsorted(starts, wrong_at, side="right")) - 1)
            raise BadHeader(cursor.path, f"string {n_before + index} of {what} is not UTF-8") from error
