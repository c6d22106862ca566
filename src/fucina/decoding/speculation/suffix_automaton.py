"""Which is the longest suffix of a stream of tokens that has occurred before, and what followed it?

An online suffix automaton (Blumer et al., 1985, "The smallest automaton recognizing the subwords of a text"), as drafts
for language models are found with (Hu et al., 2024, "SAM Decoding"). At most 2n + 1 states and 3n transitions for n
tokens; the native one needs about 1 us and at most 120 bytes a token (benchmarks/suffix_automaton.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from fucina.core.nativelib import Native, open_native
from fucina.decoding.speculation.reference_suffix_automaton import MAX_TOKENS, ReferenceAutomaton
from fucina.errors import IndexDegraded, IndexFrozen, SpeculationError, StreamTooLong, TokenOutOfRange


class Cursor(Protocol):
    """Matches a growing stream of its own against the document of a frozen index."""

    @property
    def match_length(self) -> int:
        """Length of the longest suffix of the tokens seen that occurs in the document."""

    def advance(self, tokens: Sequence[int]) -> None:
        """Go on to the next tokens. Any integer is allowed; one that the document cannot hold matches nothing."""

    def draft(self, max_tokens: int) -> list[int]:
        """Return at most `max_tokens` (from 0) tokens of the document that follow an occurrence of the match.

        Empty if nothing matches, or if the match occurs only at the document's end.
        """


class AutomatonCore(Protocol):
    """What an implementation does; `SuffixAutomaton` says what it means.

    An append answers with a number: 0 taken, 1 a token out of range, 2 the stream too long, 3 no memory, 4 degraded
    before, 5 frozen. After 1, 2 and 3 it is degraded: it lacks a part of its stream, so it lets go of everything.
    """

    @property
    def match_length(self) -> int:
        """See SuffixAutomaton."""

    @property
    def last_token(self) -> int | None:
        """See SuffixAutomaton."""

    @property
    def n_tokens(self) -> int:
        """See SuffixAutomaton."""

    @property
    def n_states(self) -> int:
        """See SuffixAutomaton."""

    @property
    def n_transitions(self) -> int:
        """See SuffixAutomaton."""

    @property
    def n_bytes(self) -> int:
        """See SuffixAutomaton."""

    @property
    def is_degraded(self) -> bool:
        """See SuffixAutomaton."""

    def append(self, tokens: Sequence[int]) -> int:
        """Take the tokens; see above for the answer."""

    def draft(self, max_tokens: int) -> list[int]:
        """See SuffixAutomaton."""

    def freeze(self) -> None:
        """Take no more tokens."""

    def cursor(self) -> Cursor:
        """See FrozenIndex."""


def open_automaton(max_tokens: int = MAX_TOKENS) -> AutomatonCore:
    """The native automaton if the extension is there, else the plain one."""
    native = open_native()
    if isinstance(native, Native):
        return cast(AutomatonCore, native.module.Automaton(max_tokens))
    return ReferenceAutomaton(max_tokens)


class SuffixAutomaton:
    """An index of one growing stream of tokens, matched against its own past.

    A match is the longest suffix of the stream that also ends strictly before the last token; the two may overlap. An
    append that fails degrades the index for good: it holds nothing, matches nothing and takes nothing any more.
    """

    __slots__ = ("_core", "_max_tokens")

    def __init__(self, max_tokens: int = MAX_TOKENS, core: AutomatonCore | None = None) -> None:
        self._max_tokens = min(max_tokens, MAX_TOKENS)
        self._core = open_automaton(self._max_tokens) if core is None else core

    @property
    def match_length(self) -> int:
        """Length of the match; 0: there is none."""
        return self._core.match_length

    @property
    def last_token(self) -> int | None:
        """The token appended last; None if there is none."""
        return self._core.last_token

    @property
    def n_tokens(self) -> int:
        """Tokens of the stream."""
        return self._core.n_tokens

    @property
    def n_states(self) -> int:
        """States of the automaton, the root among them."""
        return self._core.n_states

    @property
    def n_transitions(self) -> int:
        """Transitions between them."""
        return self._core.n_transitions

    @property
    def n_bytes(self) -> int:
        """Memory that the index holds; of the plain implementation, an estimate."""
        return self._core.n_bytes

    @property
    def is_degraded(self) -> bool:
        """Whether an append failed."""
        return self._core.is_degraded

    def append(self, tokens: Sequence[int]) -> None:
        """Take the next tokens of the stream, unsigned 32-bit numbers.

        Raises TokenOutOfRange, StreamTooLong and IndexDegraded, after each of which the index is degraded, and
        IndexFrozen.
        """
        refusal = self._core.append(tokens)
        if refusal:
            raise self._error(refusal)

    def draft(self, max_tokens: int) -> list[int]:
        """Return at most `max_tokens` (from 0) tokens that followed an earlier occurrence of the match, a recent one.

        Empty if nothing matches. It may run into the match itself: what followed is part of what is matched.
        """
        return self._core.draft(max_tokens)

    def freeze(self) -> FrozenIndex:
        """Take no more tokens, and let other streams be matched against this one. Raises IndexDegraded."""
        if self._core.is_degraded:
            raise self._error(4)
        self._core.freeze()
        return FrozenIndex(self._core)

    def _error(self, refusal: int) -> SpeculationError:
        if refusal == 1:
            return TokenOutOfRange("suffix automaton: a token is no unsigned 32-bit number; append ids of a vocabulary")
        if refusal == 2:
            return StreamTooLong(f"suffix automaton: it holds at most {self._max_tokens} tokens; start a new one")
        if refusal == 3:
            return IndexDegraded("suffix automaton: no memory for more tokens; start a new one with fewer")
        if refusal == 4:
            return IndexDegraded("suffix automaton: an earlier append failed, so it lacks tokens; start a new one")
        return IndexFrozen("suffix automaton: it is frozen, and cursors read it; append to a new one")


class FrozenIndex:
    """A document that streams are matched against. Any number of cursors may read it."""

    __slots__ = ("_core",)

    def __init__(self, core: AutomatonCore) -> None:
        self._core = core

    @property
    def n_tokens(self) -> int:
        """Tokens of the document."""
        return self._core.n_tokens

    @property
    def n_bytes(self) -> int:
        """Memory that the index holds."""
        return self._core.n_bytes

    def cursor(self) -> Cursor:
        """A cursor that has seen nothing yet, for one stream."""
        return self._core.cursor()
