"""The suffix automaton in plain Python: what native/src/draft does, to the same drafts; for where no extension is.

It walks ahead of itself with a cursor where the native one reads a link, and keeps a dictionary of transitions for each
state where that has one table: two ways to the same answers.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence

#: Most tokens of a stream, so that native states and transitions are counted in 32 bits.
MAX_TOKENS = 1 << 29
_MAX_TOKEN = (1 << 32) - 1
_ROOT = 0
#: Bytes of a list's slot, the integers behind the slots of a state, and a dictionary's entry, about.
_SLOT, _STATE, _ENTRY = 8, 250, 100


class ReferenceAutomaton:
    """See AutomatonCore."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = min(max_tokens, MAX_TOKENS)
        self._frozen = False
        self.is_degraded = False
        self._tokens: list[int] = []
        self._last = _ROOT
        # The cursor: the state of the match, and its length.
        self._matched = _ROOT
        self.match_length = 0
        # Of each state: its suffix link, its longest length, where one of its occurrences ends, and what leads on.
        self._link = [_ROOT]
        self._len = [0]
        self._sample = [0]
        self._next: list[dict[int, int]] = [{}]

    @property
    def last_token(self) -> int | None:
        """See SuffixAutomaton."""
        return self._tokens[-1] if self._tokens else None

    @property
    def n_tokens(self) -> int:
        """See SuffixAutomaton."""
        return len(self._tokens)

    @property
    def n_states(self) -> int:
        """See SuffixAutomaton."""
        return len(self._len)

    @property
    def n_transitions(self) -> int:
        """See SuffixAutomaton."""
        return sum(map(len, self._next))

    @property
    def n_bytes(self) -> int:
        """See SuffixAutomaton."""
        return sys.getsizeof(self._tokens) + self.n_states * (4 * _SLOT + _STATE) + self.n_transitions * _ENTRY

    def append(self, tokens: Sequence[int]) -> int:
        """See AutomatonCore."""
        if self.is_degraded:
            return 4
        if self._frozen:
            return 5
        checked = [operator.index(token) for token in tokens]
        if any(not 0 <= token <= _MAX_TOKEN for token in checked):
            return self._degrade(1)
        if len(self._tokens) + len(checked) > self._max_tokens:
            return self._degrade(2)
        try:
            for token in checked:
                self._take(token)
        except MemoryError:
            return self._degrade(3)
        return 0

    def draft(self, max_tokens: int) -> list[int]:
        """See SuffixAutomaton."""
        return self.following(self._matched, max_tokens) if self.match_length else []

    def freeze(self) -> None:
        """See SuffixAutomaton."""
        self._frozen = True

    def cursor(self) -> ReferenceCursor:
        """See FrozenIndex."""
        return ReferenceCursor(self)

    def advanced(self, state: int, length: int, token: int) -> tuple[int, int]:
        """Follow a token from (state, length of the match) to the same of the longest suffix that occurs."""
        while token not in self._next[state]:
            if state == _ROOT:
                return _ROOT, 0
            state = self._link[state]
            length = self._len[state]
        return self._next[state][token], length + 1

    def following(self, state: int, max_tokens: int) -> list[int]:
        """The tokens after the occurrence that a state remembers."""
        begin = self._sample[state] + 1
        return self._tokens[begin : begin + max_tokens]

    def _degrade(self, refusal: int) -> int:
        """Let go of everything, and say why."""
        self.is_degraded = True
        self._tokens, self._link, self._len, self._sample, self._next = [], [], [], [], []
        self.match_length = 0
        return refusal

    def _take(self, token: int) -> None:
        """Let the cursor take the token before the automaton knows it: so it cannot match itself."""
        end = len(self._tokens)
        if self.match_length:
            self._sample[self._matched] = end - 1
        self._matched, self.match_length = self.advanced(self._matched, self.match_length, token)
        self._tokens.append(token)
        self._extend(token, end)

    def _extend(self, token: int, end: int) -> None:
        created = self._new_state(self._len[self._last] + 1, _ROOT, end, {})
        state, self._last = self._last, created
        while token not in self._next[state]:
            self._next[state][token] = created
            if state == _ROOT:
                return
            self._sample[state] = end - 1
            state = self._link[state]
        target = self._next[state][token]
        if self._len[target] > self._len[state] + 1:
            target = self._split(target, state, token, end)
        self._link[created] = target

    def _split(self, state: int, parent: int, token: int, end: int) -> int:
        """Take out of a state the strings no longer than the parent's and the token."""
        half = self._new_state(self._len[parent] + 1, self._link[state], self._sample[state], dict(self._next[state]))
        self._link[state] = half
        if self._matched == state and self.match_length <= self._len[half]:
            self._matched = half
        while self._next[parent].get(token) == state:
            self._next[parent][token] = half
            if parent == _ROOT:
                break
            self._sample[parent] = end - 1
            parent = self._link[parent]
        return half

    def _new_state(self, length: int, link: int, sample: int, transitions: dict[int, int]) -> int:
        self._len.append(length)
        self._link.append(link)
        self._sample.append(sample)
        self._next.append(transitions)
        return len(self._len) - 1


class ReferenceCursor:
    """See Cursor."""

    def __init__(self, automaton: ReferenceAutomaton) -> None:
        self._automaton = automaton
        self._state = _ROOT
        self.match_length = 0

    def advance(self, tokens: Sequence[int]) -> None:
        """See Cursor."""
        for token in tokens:
            self._state, self.match_length = self._automaton.advanced(self._state, self.match_length, token)

    def draft(self, max_tokens: int) -> list[int]:
        """See Cursor."""
        return self._automaton.following(self._state, max_tokens) if self.match_length else []
