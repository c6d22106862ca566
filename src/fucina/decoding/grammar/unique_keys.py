"""A matcher that gives no object a key twice, which the engine lets pass where a schema does not name the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fucina.decoding.grammar.matcher import GrammarMatcher, check_room
from fucina.decoding.grammar.object_keys import JsonState
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.errors import ConstraintFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class UniqueKeysMatcher:
    """A `Matcher` for JSON. Beyond what the grammar forbids, no token may complete a key that its object has already.

    Where no other key is left ConstraintFailed ends it; `KeysLeftMatcher` keeps away from there.
    """

    def __init__(self, matcher: GrammarMatcher, vocabulary: GrammarVocabulary, state: JsonState | None = None) -> None:
        """Take over `matcher`, whose text so far leads to `state`; None: that has no text yet."""
        self._matcher, self._vocabulary, self._state = matcher, vocabulary, JsonState() if state is None else state
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
        states = self._states(drafts)
        n_masks = self._matcher.masks(drafts[: len(states) - 1], out[: len(states)])
        for i in range(n_masks):
            if self._vocabulary.key_tokens.forbid(states[i], out[i]) and not out[i].any():
                if i:
                    return i
                raise used_up()
        return n_masks

    def take(self, token: int) -> bool:
        """Go on by one token if the mask allows it. False: it does not, and nothing changed."""
        state = self._after(self._state, token)
        if state is None or not self._matcher.take(token):
            return False
        self._state = state
        return True

    def consume(self, token: int) -> None:
        """Go on by one token that the mask allows. Raises ConstraintFailed for any other, which changes nothing."""
        if not self.take(token):
            raise ConstraintFailed(f"token {token} is not allowed here, or its object has that key already")

    def forced_tokens(self) -> Sequence[int]:
        """Tell the tokens that must follow because each is the only one allowed. Changes nothing."""
        forced = self._matcher.forced_tokens()
        n_left = len(self._states(forced)) - 1
        if forced and not n_left:
            raise used_up()
        return forced[:n_left]

    def valid_prefix_len(self, tokens: Sequence[int]) -> int:
        """Count how many of these tokens, from the first on, may follow. Changes nothing."""
        return self._matcher.valid_prefix_len(tokens[: len(self._states(tokens)) - 1])

    def copy(self) -> UniqueKeysMatcher:
        """A matcher of its own in the same state."""
        return UniqueKeysMatcher(self._matcher.copy(), self._vocabulary, self._state)

    def state_behind(self, token: int) -> JsonState | None:
        """Where the text stands behind a token; None where that completes a key that its object has already."""
        return self._after(self._state, token)

    def towards_known(self, mask: NDArray[np.uint32]) -> list[int]:
        """Give the tokens of the mask of the next one, (n_words,), behind which the key may repeat a known one."""
        return self._vocabulary.key_tokens.towards_known(self._state, mask)

    def _states(self, tokens: Sequence[int]) -> list[JsonState]:
        """The state here, and behind each of these tokens up to the first that completes a key twice."""
        states = [self._state]
        for token in tokens:
            state = self._after(states[-1], token)
            if state is None:
                break
            states.append(state)
        return states

    def _after(self, state: JsonState, token: int) -> JsonState | None:
        """Go on by a token; one that is no text leads nowhere, and it is for the grammar to refuse it."""
        return state.after(self._vocabulary.texts[token]) if self._vocabulary.is_text(token) else state


def used_up() -> ConstraintFailed:
    """The error of an object that asks for a key and has them all."""
    return ConstraintFailed(
        "every key that may come here is in its object already: the patterns for names match too few of them"
    )
