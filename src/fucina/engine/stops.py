"""Stop strings: matched character by character, however tokens cut the text, and never leaked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Released(NamedTuple):
    """Text that may go out, and the stop string that ended it (None: go on)."""

    text: str
    stop: str | None


class _Automaton:
    """How much of one stop string the text ends with, after each character (Knuth, Morris and Pratt, 1977)."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.n_matched = 0
        # _fallback[n]: the longest proper prefix of stop that ends stop[:n]
        self._fallback = [0, 0]
        for n in range(1, len(stop)):
            k = self._fallback[n]
            while k and stop[k] != stop[n]:
                k = self._fallback[k]
            self._fallback.append(k + (stop[k] == stop[n]))

    def step(self, character: str) -> int:
        """Take a character; give how many characters of the stop string the text now ends with."""
        n = self.n_matched
        while n and self.stop[n] != character:
            n = self._fallback[n]
        self.n_matched = n + (self.stop[n] == character)
        return self.n_matched


class StopStrings:
    """Watches one answer's text for stop strings and holds back what may still become one.

    The first stop string to be complete ends the text, before its first character; of several complete at the same
    character the longest. So the result depends on the text alone, not on how it arrives.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._automata = [_Automaton(stop) for stop in sorted(set(stops), key=lambda stop: (-len(stop), stop))]
        self._held = ""

    def push(self, text: str) -> Released:
        """Take more text; give what is certain not to be part of a stop string."""
        for index, character in enumerate(text):
            complete = [a.stop for a in self._automata if a.step(character) == len(a.stop)]
            if complete:
                seen = self._held + text[: index + 1]
                self._held = ""
                return Released(seen[: len(seen) - len(complete[0])], complete[0])
        seen = self._held + text
        n_held = max(a.n_matched for a in self._automata)
        self._held = seen[len(seen) - n_held :]
        return Released(seen[: len(seen) - n_held], None)

    def flush(self) -> str:
        """Give what was held back; the text has ended without a stop string."""
        held, self._held = self._held, ""
        return held
