"""What one forward pass computes: rows of several sequences, concatenated. Values only, no arrays of activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Consecutive tokens of one sequence in a pass.

    Row i of the span computes position `start + i` and writes its K and V there; it sees positions <= start + i.
    `blocks` is the sequence's block table: block `p // 64` holds position p; it covers every position of the span.
    `n_logits` trailing rows of the span get logits (0: none; 1: the last row; len(tokens): all).
    """

    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]
    n_logits: int


class Batch(NamedTuple):
    """All spans of a pass, one per sequence. Rows, and rows of logits, follow the order of the spans."""

    spans: tuple[Span, ...]

    @property
    def n_rows(self) -> int:
        """Rows of the pass."""
        return sum(len(span.tokens) for span in self.spans)

    @property
    def n_logits(self) -> int:
        """Rows of logits that the pass gives."""
        n_logits = 0
        for span in self.spans:  # in every step; a generator would cost more than the sum
            n_logits += span.n_logits
        return n_logits
