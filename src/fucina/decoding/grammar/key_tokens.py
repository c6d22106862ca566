"""Which tokens of a vocabulary complete a key that its object has already, and which lead towards one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fucina.decoding.grammar.object_keys import JsonState, Place, string_end

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KeyTokens:
    """The tokens of a vocabulary that hold quotes: few. It never changes; any number of threads may use it."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """Look through the bytes of every token: some 50 ms per 100,000."""
        self._texts = texts
        quoted = {token: text for token, text in enumerate(texts) if b'"' in text}
        self._ends = _by_end(quoted, is_escaped=False), _by_end(quoted, is_escaped=True)
        # a key within one token needs two quotes, and one more where the token begins in a string
        self._two, self._three = (
            _Few({t: text for t, text in quoted.items() if text.count(b'"') >= n}) for n in (2, 3)
        )
        self._quoted = _Few(quoted)

    def forbid(self, state: JsonState, mask: NDArray[np.uint32]) -> bool:
        """Take out of the mask of the next token, (n_words,), those that would give an object a key twice.

        Tells whether the mask had one.
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
                    found.update(token for token in ends.get(key[n_written:], ()) if allows(mask, token))
        for token in found:
            forbid(token, mask)
        return bool(found)

    def towards_known(self, state: JsonState, mask: NDArray[np.uint32]) -> list[int]:
        """Give those that a mask (n_words,) allows and behind which the key is, so far, one that its object has."""
        found = []
        for token, text in (self._joints if state.place is Place.OUTSIDE else self._quoted).allowed(mask):
            after = state.after(text)
            if after is not None and after.may_repeat:
                found.append(token)
        if state.place is Place.KEY:
            rests = [key[len(state.key) :] for key in state.keys if key.startswith(state.key)]
            beginnings = {rest[:n] for rest in rests for n in range(1, len(rest) + 1)}
            known = (token for beginning in beginnings for token in self._by_text.get(beginning, ()))
            found += [token for token in known if allows(mask, token) and token not in found]
        return found

    @cached_property
    def _joints(self) -> _Few:
        """The tokens that can lead from outside of a string to a key: with quotes, commas, or nothing but space."""
        return _Few({i: text for i, text in enumerate(self._texts) if b'"' in text or b"," in text or text.isspace()})

    @cached_property
    def _by_text(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for token, text in enumerate(self._texts):
            found.setdefault(text, []).append(token)
        return found


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


def allows(mask: NDArray[np.uint32], token: int) -> bool:
    """Whether a mask (n_words,) allows a token."""
    return bool(int(mask[token >> 5]) >> (token & 31) & 1)


def forbid(token: int, mask: NDArray[np.uint32]) -> None:
    """Take a token out of a mask (n_words,)."""
    mask[token >> 5] &= np.uint32(~(1 << (token & 31)) & 0xFFFFFFFF)


def _by_end(texts: dict[int, bytes], *, is_escaped: bool) -> dict[bytes, list[int]]:
    """The tokens that end a string, by their bytes before that. `is_escaped`: the first byte ends an escape."""
    found: dict[bytes, list[int]] = {}
    for token, text in texts.items():
        end, _ = string_end(text, 0, is_escaped=is_escaped)
        if end < len(text):
            found.setdefault(text[:end], []).append(token)
    return found
