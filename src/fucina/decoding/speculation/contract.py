"""What a source of drafts must do. It proposes tokens; the model and the picker decide, so it can change speed only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class DraftSource(Protocol):
    """Proposes what may come next in one sequence. Deterministic; it serves one sequence and is fed in order.

    Whatever it returns is checked: too many tokens are cut, so is everything from the first id outside the vocabulary.
    A source that raises is not asked again, and its sequence goes on without drafts.
    """

    def suggest(self, context: Sequence[int], max_tokens: int) -> Sequence[int]:
        """Propose at most `max_tokens` tokens to follow `context`, every committed token so far; none is an answer.

        `context` is borrowed: valid during the call only.
        """

    def observe(self, committed: Sequence[int]) -> None:
        """Learn tokens that were committed: first the whole prompt, then each step's tokens in order."""


@runtime_checkable
class CutListener(Protocol):
    """A draft source that wants to know when less than it proposed is tried."""

    def truncate_pending(self, n_tokens: int) -> None:
        """Take note that only the first `n_tokens` of the last suggestion are being tried."""
