"""A matcher without an engine for grammars: it knows every answer there is, and allows what begins one of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fucina.errors import ConstraintFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ScriptedMatcher:
    """A `Matcher` over a finite set of answers (token sequences). It counts its calls in `n_masks` and `n_consumed`."""

    def __init__(self, answers: Collection[Sequence[int]], *, vocab: int, end_ids: Collection[int]) -> None:
        self._answers, self._end_ids = frozenset(map(tuple, answers)), frozenset(end_ids)
        self.n_words = -(-vocab // 32)
        self.consumed: tuple[int, ...] = ()
        self.n_masks = self.n_consumed = 0

    @property
    def is_accepting(self) -> bool:
        """Whether the answer may end here."""
        return self.consumed in self._answers

    @property
    def is_complete(self) -> bool:
        """Whether nothing but an end may follow."""
        return self.is_accepting and self._allowed(self.consumed) <= self._end_ids

    def masks(self, drafts: Sequence[int], out: NDArray[np.uint32]) -> int:
        """See Matcher."""
        assert out.shape == (len(drafts) + 1, self.n_words)
        for n in range(len(drafts) + 1):
            before = (*self.consumed, *drafts[:n])
            allowed = self._allowed(before)
            out[n] = 0
            for token in allowed:
                out[n, token >> 5] |= np.uint32(1 << (token & 31))
            self.n_masks += 1
            if n == len(drafts) or drafts[n] not in allowed or drafts[n] in self._end_ids:
                return n + 1
        raise AssertionError("the loop returns")

    def take(self, token: int) -> bool:
        """See Matcher."""
        if token not in self._allowed(self.consumed):
            return False
        self.n_consumed += 1
        self.consumed = (*self.consumed, token)
        return True

    def consume(self, token: int) -> None:
        """See Matcher."""
        if not self.take(token):
            raise ConstraintFailed(f"token {token} is not allowed behind {list(self.consumed)}")

    def forced_tokens(self) -> Sequence[int]:
        """See Matcher; ends are never told."""
        forced: list[int] = []
        while True:
            allowed = self._allowed((*self.consumed, *forced))
            if len(allowed) != 1 or allowed <= self._end_ids:
                return forced
            forced += allowed

    def valid_prefix_len(self, tokens: Sequence[int]) -> int:
        """See Matcher; an end is valid where it may come, and nothing behind it."""
        for n, token in enumerate(tokens):
            if token not in self._allowed((*self.consumed, *tokens[:n])):
                return n
            if token in self._end_ids:
                return n + 1
        return len(tokens)

    def copy(self) -> ScriptedMatcher:
        """See Matcher; the copy counts its own calls."""
        other = ScriptedMatcher(self._answers, vocab=32 * self.n_words, end_ids=self._end_ids)
        other.consumed = self.consumed
        return other

    def _allowed(self, before: tuple[int, ...]) -> frozenset[int]:
        """The tokens that may come behind these."""
        n = len(before)
        following = frozenset(one[n] for one in self._answers if len(one) > n and one[:n] == before)
        return following | self._end_ids if before in self._answers else following
