"""Which tokens of a vocabulary would complete a key that its object has already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fucina.decoding.grammar.object_keys import JsonState, Place, string_end

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KeyEnds:
    """The tokens of a vocabulary that hold quotes: few. It never changes; any number of threads may use it."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """Look through the bytes of every token: some 50 ms per 100,000."""
        quoted = {token: text for token, text in enumerate(texts) if b'"' in text}
        self._ends = _by_end(quoted, is_escaped=False), _by_end(quoted, is_escaped=True)
        # a key within one token needs two quotes, and one more where the token begins in a string
        self._two, self._three = (
            _Few({t: text for t, text in quoted.items() if text.count(b'"') >= n}) for n in (2, 3)
        )

    def forbid(self, state: JsonState, mask: NDArray[np.uint32]) -> bool:
        """Take out of the mask of the next token, (n_words,), those that would give an object a key twice.

        Tells whether there was one.
        """
        found = {
            token
            for token, text in (self._two if state.place is Place.OUTSIDE else self._three).allowed(mask)
            if state.after(text) is None
        }
        if state.place is Place.KEY:
            ends, n_written = self._ends[state.is_escaped], len(state.key)
            for key in state.keys:
                if key.startswith(state.key):
                    found.update(ends.get(key[n_written:], ()))
        for token in found:
            mask[token >> 5] &= np.uint32(~(1 << (token & 31)) & 0xFFFFFFFF)
        return bool(found)


class _Few:
    """Some tokens and their texts, to be looked up in masks."""

    def __init__(self, texts: dict[int, bytes]) -> None:
        self._items = list(texts.items())
        tokens = np.array(list(texts), np.intp)
        self._words, self._bits = tokens >> 5, np.uint32(1) << (tokens & 31).astype(np.uint32)

    def allowed(self, mask: NDArray[np.uint32]) -> Iterator[tuple[int, bytes]]:
        """Those that a mask allows."""
        for i in (mask[self._words] & self._bits).nonzero()[0].tolist():
            yield self._items[i]


def _by_end(texts: dict[int, bytes], *, is_escaped: bool) -> dict[bytes, list[int]]:
    """The tokens that end a string, by their bytes before that. `is_escaped`: the first byte ends an escape."""
    found: dict[bytes, list[int]] = {}
    for token, text in texts.items():
        end, _ = string_end(text, 0, is_escaped=is_escaped)
        if end < len(text):
            found.setdefault(text[:end], []).append(token)
    return found
