"""What was said in sequences that have ended, indexed for those to come: answers to similar questions are alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fucina.decoding.speculation.suffix_automaton import FrozenIndex, SuffixAutomaton

#: Stands between sequences. No vocabulary has it, so no match crosses it, and a draft that would is cut there.
SEPARATOR = 0xFFFFFFFF
#: Tokens that are kept: their indexes take 3 MB, and indexing all of them again 15 ms (uneven words of 20,000).
MAX_TOKENS = 1 << 15


class _Segment(NamedTuple):
    """Some sequences in order, and their index."""

    tokens: list[int]
    frozen: FrozenIndex


class History:
    """Frozen indexes of the latest sequences of one model. The oldest are forgotten.

    An index that is read cannot grow, so every sequence begins one of its own, and one at least as long as the one
    before swallows it: few indexes, of falling sizes, and each token is indexed again a few times only.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._segments: list[_Segment] = []

    def add(self, tokens: Sequence[int]) -> None:
        """Remember a sequence, or what came to one since it was remembered last."""
        added = [*tokens[max(len(tokens) - self._max_tokens, 0) :], SEPARATOR]
        if len(added) == 1:
            return
        n_others = sum(len(segment.tokens) for segment in self._segments)
        while self._segments and n_others + len(added) > self._max_tokens + 1:
            n_others -= len(self._segments.pop(0).tokens)
        while self._segments and len(self._segments[-1].tokens) <= len(added):
            added = self._segments.pop().tokens + added
        automaton = SuffixAutomaton()
        automaton.append(added)
        self._segments.append(_Segment(added, automaton.freeze()))

    def indexes(self) -> list[FrozenIndex]:
        """The indexes to match a new sequence with, the latest first."""
        return [segment.frozen for segment in reversed(self._segments)]
