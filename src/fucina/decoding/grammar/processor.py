"""A grammar inside the picker: what it forbids cannot be chosen, so every way of decoding is held to it alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fucina.decoding.grammar.contract import Matcher
from fucina.decoding.grammar.costs import MaskCosts
from fucina.decoding.grammar.masks import MASK_THREAD, MasksAhead, MaskThread
from fucina.decoding.scans import RowScans

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Thinking(NamedTuple):
    """The markers around what a model thinks before it answers; `is_open`: the prompt ends inside."""

    open_id: int
    close_id: int
    is_open: bool = False


class _Phase(Enum):
    """Where an answer stands: before its first token, where it may begin to think; in its thoughts; in the grammar."""

    START, THINKING, GRAMMAR = range(3)


class GrammarProcessor:
    """Holds one sequence at a time to a grammar. A LogitProcessor with look-aheads and masks computed ahead.

    Thoughts are free, but the answer cannot end in them; the grammar begins at the token after the closing marker.
    Whatever the matcher raises comes out of `process`, `commit` and the look-aheads.
    """

    def __init__(
        self,
        matcher: Matcher,
        scans: RowScans,
        *,
        end_ids: Collection[int],
        thinking: Thinking | None = None,
        thread: MaskThread | None = MASK_THREAD,
    ) -> None:
        """Start each answer from a copy of `matcher`, which nobody else may use.

        `end_ids` end an answer. `thinking`: where the model may think first. `thread`: None computes every mask when
        it is needed.
        """
        self._start, self._scans, self._thread = matcher, scans, thread
        self._end_ids, self._thinking = frozenset(end_ids), thinking
        self._ends = np.array(sorted(end_ids), np.intp)
        self.reset()

    @property
    def mask_costs(self) -> MaskCosts:
        """What the masks of this answer took so far."""
        return self._masks.costs

    def reset(self) -> None:
        """Become as new: called before the first process of an answer."""
        self._masks = MasksAhead(self._start.copy(), self._thread)
        self._phase = _Phase.GRAMMAR
        if self._thinking is not None:
            self._phase = _Phase.THINKING if self._thinking.is_open else _Phase.START
        self._was_accepting = False  # before the last token
        self._needs_masks = True  # the last token was chosen under one

    def prepare(self, drafts: Sequence[int]) -> None:
        """Begin with the masks of a pass with these drafts, in the background."""
        if not self._needs_masks:
            return
        n_thoughts, phase = self._thoughts(drafts)
        if self._phase is not _Phase.THINKING or phase is not _Phase.THINKING:
            self._masks.prepare(drafts[n_thoughts:])

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:  # noqa: ARG002
        """Put -inf in place where the grammar forbids a token. logits (vocab,)."""
        if self._phase is _Phase.THINKING:
            logits[self._ends] = -np.inf
            return
        self._needs_masks = True
        mask = self._masks.mask()
        if self._phase is _Phase.START and self._thinking is not None:
            opening = logits[self._thinking.open_id]
            self._scans.apply_bitmask(logits, mask)
            logits[self._thinking.open_id] = opening
        else:
            self._scans.apply_bitmask(logits, mask)

    def only_token(self) -> int | None:
        """The next token, where the grammar allows no other."""
        forced = self._masks.forced() if self._phase is _Phase.GRAMMAR else ()
        return forced[0] if forced else None

    def allowed(self) -> NDArray[np.uint32] | None:
        """The grammar's mask of the next token (n_words,); None while the model may think."""
        if self._phase is not _Phase.GRAMMAR:
            return None
        self._needs_masks = True
        return self._masks.mask()

    def take(self, token: int) -> bool:
        """Commit a token if the grammar allows it; then no mask is computed, nor begun ahead of the next pass."""
        if self._phase is not _Phase.GRAMMAR or token in self._end_ids:
            is_allowed = self._n_allowed((token,)) == 1
            if is_allowed:
                self.commit(token)
        else:
            was_accepting = self._masks.matcher.is_accepting
            is_allowed = self._masks.take(token)
            if is_allowed:
                self._was_accepting = was_accepting
        self._needs_masks = not is_allowed
        return is_allowed

    def commit(self, token: int) -> None:
        """Go on by the chosen token; behind an end there is nothing to go on to."""
        if self._phase is not _Phase.GRAMMAR:
            n_thoughts, self._phase = self._thoughts((token,))
            if n_thoughts:
                return
        self._was_accepting = self._masks.matcher.is_accepting
        if token not in self._end_ids:
            self._masks.consume(token)

    def forced_tokens(self, max_tokens: int) -> Sequence[int]:
        """Tell the tokens, at most that many, that must follow because no other is allowed."""
        if self._phase is not _Phase.GRAMMAR:  # at the start it may think as well
            return ()
        return self._masks.forced()[:max_tokens]

    def valid_prefix_len(self, tokens: Sequence[int]) -> int:
        """Count how many of these tokens, from the first on, would be allowed one after the other."""
        return self._n_allowed(tokens)

    def _n_allowed(self, tokens: Sequence[int]) -> int:
        n_thoughts, _ = self._thoughts(tokens)
        for n, token in enumerate(tokens[:n_thoughts]):
            if token in self._end_ids:
                return n
        if n_thoughts == len(tokens):
            return n_thoughts
        return n_thoughts + self._masks.matcher.valid_prefix_len(tokens[n_thoughts:])

    def is_satisfied(self, *, ended: bool) -> bool:
        """Whether what was committed is a whole answer. `ended`: the last token only ended it, and is no part of it."""
        if ended:
            return self._phase is _Phase.GRAMMAR and self._was_accepting
        return self._phase in (_Phase.START, _Phase.GRAMMAR) and self._masks.matcher.is_accepting

    def _thoughts(self, tokens: Sequence[int]) -> tuple[int, _Phase]:
        """How many of the next tokens belong to thinking, its markers included, and the phase behind all tokens."""
        if self._phase is _Phase.GRAMMAR or self._thinking is None:
            return 0, _Phase.GRAMMAR
        if not tokens:
            return 0, self._phase
        if self._phase is _Phase.START and tokens[0] != self._thinking.open_id:
            return 0, _Phase.GRAMMAR
        for n, token in enumerate(tokens, 1):
            if token == self._thinking.close_id:
                return n, _Phase.GRAMMAR
        return len(tokens), _Phase.THINKING
