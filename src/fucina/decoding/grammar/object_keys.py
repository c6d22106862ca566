"""Where a JSON text stands, as far as the keys of its objects are concerned."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

_QUOTE, _ESCAPE, _COMMA, _OBJECT, _ARRAY = b'"\\,{['
_CLOSING = b"}]"


class Place(Enum):
    """Outside of strings, in one that is a value, or in a key."""

    OUTSIDE, VALUE, KEY = range(3)


class Level(NamedTuple):
    """An object or array that is open, and the one around it. `keys`: those of the object so far; None in an array."""

    keys: tuple[bytes, ...] | None
    around: Level | None


class JsonState(NamedTuple):
    """A place in a JSON text. It never changes, so any number of continuations can begin at one.

    `key` is what of the current key is written, as it is written: the grammars write each name in one way only, so
    equal names are equal bytes. `is_escaped`: the next byte ends an escape. `wants_key`: the next string is a key.
    """

    place: Place = Place.OUTSIDE
    level: Level | None = None
    key: bytes = b""
    is_escaped: bool = False
    wants_key: bool = False

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys of the innermost object so far; none in an array."""
        return () if self.level is None or self.level.keys is None else self.level.keys

    @property
    def may_repeat(self) -> bool:
        """Whether the next key, or what is written of it, may still become one that its object has already."""
        if self.place is Place.KEY:
            return any(key.startswith(self.key) for key in self.keys)
        return self.wants_key and bool(self.keys)

    def after(self, text: bytes) -> JsonState | None:
        """Go on by some bytes of a JSON text; None where they complete a key that its object has already."""
        state, at = self, 0
        while at < len(text):
            if state.place is Place.OUTSIDE:
                state, at = state._outside(text, at)
            else:
                end, is_escaped = string_end(text, at, is_escaped=state.is_escaped)
                key = state.key + text[at:end] if state.place is Place.KEY else b""
                if end == len(text):
                    return state._replace(key=key, is_escaped=is_escaped)
                if state.place is Place.VALUE:
                    state = JsonState(level=state.level)
                elif key in state.keys:
                    return None
                else:
                    state = state._with_key(key)
                at = end + 1
        return state

    def _outside(self, text: bytes, at: int) -> tuple[JsonState, int]:
        """Go on to the next string, or to the end of the text."""
        level, wants_key = self.level, self.wants_key
        for i in range(at, len(text)):
            byte = text[i]
            if byte == _QUOTE:
                return JsonState(Place.KEY if wants_key else Place.VALUE, level, wants_key=wants_key), i + 1
            if byte == _COMMA:
                wants_key = level is not None and level.keys is not None
            elif byte in (_OBJECT, _ARRAY):
                wants_key = byte == _OBJECT
                level = Level(() if wants_key else None, level)
            elif byte in _CLOSING:
                level, wants_key = None if level is None else level.around, False
        return JsonState(Place.OUTSIDE, level, wants_key=wants_key), len(text)

    def _with_key(self, key: bytes) -> JsonState:
        """Go on behind a key, which is new."""
        assert self.level is not None and self.level.keys is not None
        return JsonState(Place.OUTSIDE, Level((*self.level.keys, key), self.level.around))


def string_end(text: bytes, at: int, *, is_escaped: bool) -> tuple[int, bool]:
    """Where the first quote that ends a string stands, from `at` on, or the length of the text without any.

    And whether a byte that ends an escape is missing there.
    """
    for i in range(at, len(text)):
        if is_escaped:
            is_escaped = False
        elif text[i] == _ESCAPE:
            is_escaped = True
        elif text[i] == _QUOTE:
            return i, False
    return len(text), is_escaped
