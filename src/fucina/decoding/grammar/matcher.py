"""Where one sequence stands in its grammar, on llguidance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.errors import ConstraintFailed, ShapeError

if TYPE_CHECKING:
    import llguidance
    from numpy.typing import NDArray

# Of a forced text that is longer only so many tokens are told at once.
_MOST_TOLD = 256


class GrammarMatcher:
    """A `Matcher`. One thread at a time; copies are independent of each other."""

    def __init__(self, state: llguidance.LLMatcher, vocabulary: GrammarVocabulary, *, ended: bool = False) -> None:
        """Take over `state`, which nobody else may use."""
        self._state, self._vocabulary, self._ended = state, vocabulary, ended
        # Tokens that must follow one another from the engine's state on, never changed, and how many of them did: it
        # takes them all at once. Asking it anew behind each would give the same, for more than all else takes.
        self._run: list[int] | None = None
        self._at = 0
        self._room: tuple[NDArray[np.uint32], int] | None = None  # of a mask, and its address
        self.n_words = vocabulary.n_words

    @property
    def is_accepting(self) -> bool:
        """Whether the answer may end here."""
        return self._ended or self._state.is_accepting()

    @property
    def is_complete(self) -> bool:
        """Whether nothing but an end may follow."""
        return self._ended or (self._state.is_stopped() and self._state.is_accepting())

    def masks(self, drafts: Sequence[int], out: NDArray[np.uint32]) -> int:
        """Write the mask of the next token, and of the one after each draft; give how many were written.

        out (len(drafts) + 1, n_words) uint32. The GIL is free during the long parts.
        """
        check_room(out, len(drafts) + 1, self.n_words)
        trial = self
        trial._write_mask(out[0])
        for i, draft in enumerate(drafts):
            if not 0 <= draft < self._vocabulary.vocab_size or not int(out[i, draft >> 5]) >> (draft & 31) & 1:
                return i + 1
            trial = self.copy() if trial is self else trial
            trial.consume(draft)
            trial._write_mask(out[i + 1])
        return len(drafts) + 1

    def take(self, token: int) -> bool:
        """Go on by one token if the mask allows it. False: it does not, and nothing changed."""
        forced = self._forced_token()
        if forced is None:
            return self._advance(token)
        if forced != token:  # other ways to cut a forced text into tokens are not the mask's
            return False
        self._at += 1
        if self._run is not None and self._at == len(self._run):
            self._end_run(self._run)
        return True

    def consume(self, token: int) -> None:
        """Go on by one token that the mask allows. Raises ConstraintFailed for any other, which changes nothing."""
        if not self.take(token):
            raise ConstraintFailed(f"token {token} is not allowed here")

    def forced_tokens(self) -> Sequence[int]:
        """Tell the tokens that must follow because each is the only one allowed; of very many, the first."""
        if self._forced_token() is None:
            return ()
        assert self._run is not None
        return self._run[self._at : self._at + _MOST_TOLD]

    def valid_prefix_len(self, tokens: Sequence[int]) -> int:
        """Count how many of these tokens, from the first on, may follow. Changes nothing."""
        if not tokens or not 0 <= tokens[0] < self._vocabulary.vocab_size or not self._may_take(tokens[0]):
            return 0
        trial = self.copy()
        for i, token in enumerate(tokens):
            try:
                trial.consume(token)
            except ConstraintFailed:
                return i
        return len(tokens)

    def copy(self) -> GrammarMatcher:
        """A matcher of its own in the same state."""
        other = GrammarMatcher(self._state.deep_copy(), self._vocabulary, ended=self._ended)
        other._run, other._at = self._run, self._at
        return other

    def _may_take(self, token: int) -> bool:
        """Whether it may follow, as far as that can be told without trying."""
        forced = self._forced_token()
        if forced is not None:
            return token == forced
        return self._ended or token in self._vocabulary.end_ids or self._state.validate_tokens([token]) == 1

    def _forced_token(self) -> int | None:
        """The only token that may follow, as far as the text is forced; None where there is a choice, or an end."""
        if self._ended:
            return None
        if self._run is None:
            self._run, self._at = self._state.compute_ff_tokens(), 0
            self._check()
        return self._run[self._at] if self._run else None

    def _advance(self, token: int) -> bool:
        """Go on by a token that nothing forces, if the engine takes it."""
        if self._vocabulary.is_text(token):
            if self._ended or self._state.try_consume_tokens([token]) != 1:
                self._check()
                return False
            self._run = None
            self._check()
            return True
        self._ended = self._ended or (token in self._vocabulary.end_ids and self._state.is_accepting())
        return self._ended and token in self._vocabulary.end_ids

    def _end_run(self, run: list[int]) -> None:
        """Let the engine take what was forced, all of which came."""
        self._run = None
        n_taken = self._state.try_consume_tokens(run)
        self._check()
        if n_taken != len(run):
            raise ConstraintFailed(f"the grammar forces token {run[n_taken]} and refuses it")

    def _write_mask(self, out: NDArray[np.uint32]) -> None:
        forced = self._forced_token()
        if self._ended:
            out[:] = self._vocabulary.end_mask
        elif forced is not None:
            out[:] = 0
            out[forced >> 5] = 1 << (forced & 31)
        else:
            if self._room is None:
                room = np.empty(self.n_words, np.uint32)
                self._room = room, room.ctypes.data
            room, address = self._room
            self._state.unsafe_compute_mask_ptr(address, room.nbytes)
            self._check()
            # where a grammar excludes something, the engine may allow tokens without text that it then refuses
            np.bitwise_and(room, self._vocabulary.known_mask, out=out)

    def _check(self) -> None:
        if self._state.is_error():
            self._run = None
            raise ConstraintFailed(f"the grammar cannot be followed any further: {self._state.get_error()}")


def check_room(out: NDArray[np.uint32], n_masks: int, n_words: int) -> None:
    """Raise ShapeError for anything but room for so many masks: (n_masks, n_words) uint32, C-contiguous."""
    expected = (n_masks, n_words)
    if out.shape != expected or out.dtype != np.uint32 or not out.flags.c_contiguous:
        raise ShapeError("masks", expected=f"{expected} uint32, C-contiguous", got=f"{out.shape} {out.dtype}")
