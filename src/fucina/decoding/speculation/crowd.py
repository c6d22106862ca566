"""What a drafted row really takes where several sequences share a pass."""

from __future__ import annotations

from collections import deque
from statistics import median_low

# Of so many plain timings the least counts, of prices the middle one, for these differ by their rows: stalls only add,
# and are too few to reach it. Nothing is said from fewer than four.
_PLAIN_TIMINGS, _VERIFIES, _FEWEST = 8, 16, 4
# No row is taken to be dearer than so many plain steps.
_DEAREST = 4.0
# What a plain pass takes off the way back to the table's price: what was too dear is tried again after some time.
_RELAXED = 0.01


class Crowd:
    """The price of rows in passes of `n_sequences`, learned from passes with drafts and without.

    All drafts of a pass together are set against its whole time, for every sequence waits for all of it. Beside several
    rows a row more costs the same however many there are, so that there is one price. It begins as the table's.
    """

    def __init__(self, n_sequences: int, table_price: float) -> None:
        """`table_price`: of a row, in plain steps of one sequence."""
        self._n_sequences, self._table_price = n_sequences, table_price
        #: A row's, in plain steps of one sequence.
        self.row_price = table_price
        self._plain_s: deque[float] = deque(maxlen=_PLAIN_TIMINGS)
        self._prices: deque[float] = deque(maxlen=_VERIFIES)

    def record_plain(self, seconds: float) -> None:
        """Take note of a pass without drafts."""
        self._plain_s.append(seconds)
        self.row_price += _RELAXED * (self._table_price - self.row_price)

    def record_verify(self, n_drafts: int, seconds: float) -> None:
        """Take note of a pass with so many drafts, of one sequence or several."""
        if len(self._plain_s) >= _FEWEST:
            plain_s = min(self._plain_s)
            self._prices.append(self._n_sequences * (seconds / plain_s - 1.0) / n_drafts)
            if len(self._prices) >= _FEWEST:
                self.row_price = min(max(median_low(self._prices), 0.0), _DEAREST)
