"""A matcher for schemas whose patterns for names may match few: it goes nowhere where all of them are used up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fucina.decoding.grammar.key_tokens import allows, forbid
from fucina.decoding.grammar.matcher import check_room
from fucina.decoding.grammar.object_keys import JsonState
from fucina.decoding.grammar.unique_keys import UniqueKeysMatcher, used_up
from fucina.errors import ConstraintFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KeysLeftMatcher:
    """A `Matcher`. Beyond what another forbids, no token may lead to where each way on completes a known key.

    Each token towards a known key costs a mask of what may follow it.
    """

    def __init__(self, matcher: UniqueKeysMatcher) -> None:
        """Take over `matcher`."""
        self._matcher = matcher
        self.n_words = matcher.n_words

    @property
    def is_accepting(self) -> bool:
        """Whether the answer may end here."""
        return self._matcher.is_accepting

    @property
    def is_complete(self) -> bool:
        """Whether nothing but an end may follow."""
        return self._matcher.is_complete

    def masks(self, drafts: Sequence[int], out: NDArray[np.uint32]) -> int:
        """Write the mask of the next token, and of the one after each draft; give how many were written.

        out (len(drafts) + 1, n_words) uint32. Raises ConstraintFailed where nothing may follow.
        """
        check_room(out, len(drafts) + 1, self.n_words)
        trial = self._matcher
        _write_mask(trial, out[:1])
        for i, draft in enumerate(drafts):
            if not 0 <= draft < 32 * self.n_words or not allows(out[i], draft):
                return i + 1
            trial = trial.copy() if trial is self._matcher else trial
            trial.consume(draft)
            _write_mask(trial, out[i + 1 : i + 2])
        return len(drafts) + 1

    def take(self, token: int) -> bool:
        """Go on by one token if the mask allows it. False: it does not, and nothing changed."""
        if self._matcher.valid_prefix_len((token,)) and _leads_nowhere(self._matcher, token, {}):
            return False
        return self._matcher.take(token)

    def consume(self, token: int) -> None:
        """Go on by one token that the mask allows. Raises ConstraintFailed for any other, which changes nothing."""
        if not self.take(token):
            raise ConstraintFailed(f"token {token} is not allowed here, or its object has every key that it leads to")

    def forced_tokens(self) -> Sequence[int]:
        """Tell the tokens that must follow because each is the only one allowed. Changes nothing."""
        forced = self._matcher.forced_tokens()
        n_valid = self.valid_prefix_len(forced)
        if forced and not n_valid:
            raise used_up()
        return forced[:n_valid]

    def valid_prefix_len(self, tokens: Sequence[int]) -> int:
        """Count how many of these tokens, from the first on, may follow. Changes nothing."""
        n_most = self._matcher.valid_prefix_len(tokens)
        trial = self._matcher.copy() if n_most else self._matcher
        for i, token in enumerate(tokens[:n_most]):
            if _leads_nowhere(trial, token, {}):
                return i
            trial.consume(token)
        return n_most

    def copy(self) -> KeysLeftMatcher:
        """A matcher of its own in the same state."""
        return KeysLeftMatcher(self._matcher.copy())


def _write_mask(matcher: UniqueKeysMatcher, out: NDArray[np.uint32]) -> None:
    """The mask (1, n_words) of the next token without those that lead nowhere."""
    matcher.masks((), out)
    known: dict[JsonState, bool] = {}
    dead = [token for token in matcher.towards_known(out[0]) if _leads_nowhere(matcher, token, known)]
    for token in dead:
        forbid(token, out[0])
    if dead and not out.any():
        raise used_up()


def _leads_nowhere(matcher: UniqueKeysMatcher, token: int, known: dict[JsonState, bool]) -> bool:
    """Whether behind a token that `matcher` allows every way on completes a known key. `known`: the answers so far."""
    state = matcher.state_behind(token)
    if state is None or not state.may_repeat:
        return state is None
    if state not in known:  # what may follow depends on the text, not on how it was cut into tokens
        behind = matcher.copy()
        behind.consume(token)
        known[state] = _is_stuck(behind, known)
    return known[state]


def _is_stuck(matcher: UniqueKeysMatcher, known: dict[JsonState, bool]) -> bool:
    mask = np.zeros((1, matcher.n_words), np.uint32)
    try:
        matcher.masks((), mask)
    except ConstraintFailed:
        return True
    towards = matcher.towards_known(mask[0])
    for token in towards:
        forbid(token, mask[0])
    # what is left leads to a key that is new
    return not mask.any() and all(_leads_nowhere(matcher, token, known) for token in towards)
