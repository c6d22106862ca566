"""Finding markers in text: at every place the longest one, from left to right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property


class Markers:
    """A set of strings that each stand for one token, and the cutting of text at them."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = {text: token_id for text, token_id in ids.items() if text}
        lengths: dict[str, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._first = re.compile("[" + "".join(map(re.escape, sorted(lengths))) + "]" if lengths else "(?!)")
        #: Characters of the longest marker.
        self.longest = max(map(len, self._ids), default=0)

    def split(self, text: str) -> Iterator[str | int]:
        """The parts of `text` in order: an id for each marker, a non-empty string for what lies between."""
        done = 0
        for at in self.first_letters(text):
            length = self.length_at(text, at) if at >= done else 0
            if length:
                if at > done:
                    yield text[done:at]
                yield self._ids[text[at : at + length]]
                done = at + length
        if done < len(text):
            yield text[done:]

    def first_letters(self, text: str) -> Iterator[int]:
        """Where in `text` a letter stands that some marker starts with."""
        return (found.start() for found in self._first.finditer(text))

    def length_at(self, text: str, at: int) -> int:
        """Characters of the longest marker that starts at `at`, 0 where there is none."""
        for length in self._lengths.get(text[at], ()):
            if text[at : at + length] in self._ids:
                return length
        return 0

    def starts_with(self, text: str) -> bool:
        """Whether some marker starts with `text`."""
        return f"\0{text}" in self._joined

    def ends_with(self, text: str) -> bool:
        """Whether some marker ends with `text`."""
        return f"{text}\0" in self._joined

    def contains(self, text: str) -> bool:
        """Whether `text` lies within some marker."""
        return text in self._joined

    @cached_property
    def last_letters(self) -> frozenset[str]:
        """The letters that markers end with."""
        return frozenset(text[-1] for text in self._ids)

    @cached_property
    def _joined(self) -> str:
        return "\0" + "\0".join(self._ids) + "\0"
