"""How many prompt rows may run beside sequences that are writing, so that none of these is slowed down too much.

A table of what passes cost gives the shape; what passes really take here and now, at these depths, with whatever else
the machine does, corrects it. Only the speed depends on it, never a result.
"""

from __future__ import annotations

from collections import deque

from fucina.decoding.speculation.costs import CostTable

#: A pass with prompt rows takes at most this many times what it would take without them: the bound on what another's
#: prompt adds to the time of a token. A single row is always let in, so that every prompt is read in the end.
MOST_SLOWED = 2.0
# What is assumed where nothing was measured: 16 rows more take as long again as one row.
_ASSUMED = CostTable([(1, 1.0), (17, 2.0)])
# Of so many timings of passes without prompts the least counts: whatever disturbs a clock only ever adds to it.
_TIMINGS = 4
# Of so many corrections the median counts: they are differences, so that a disturbance may show on either side.
_CORRECTIONS, _LEAST, _GREATEST = 5, 0.125, 32.0
# After so many passes with prompts one goes without, to see again what that takes.
_PASSES_UNSEEN = 32
# Smaller shares of a pass than this are lost in the noise of its timing.
_TELLING_SHARE = 0.25
# Nothing is gained by more rows; it is as many as an engine may ever be asked to take.
_MOST_ROWS = 8192


class Pacing:
    """The row budget of prompts beside decoding sequences."""

    def __init__(self, table: CostTable | None = None) -> None:
        self._plain: deque[float] = deque(maxlen=_TIMINGS)  # seconds of passes without prompts, in the table's unit
        self.learn(table or _ASSUMED)
        self._n_given = 0  # the last budget

    def learn(self, table: CostTable) -> None:
        """Go by this table from now on."""
        self._table = table
        self._plain.clear()
        self._corrections: deque[float] = deque([1.0, 1.0], maxlen=_CORRECTIONS)
        self._n_unseen = _PASSES_UNSEEN  # passes with prompts since one without

    def prompt_rows(self, n_rows: int) -> int:
        """How many prompt rows the next pass may have beside `n_rows` decoding ones; 0 to see what these take alone."""
        if self._n_unseen >= _PASSES_UNSEEN:
            self._n_unseen = 0
            return 0
        self._n_unseen += 1
        base = self._table.cost(n_rows)
        most = base + (MOST_SLOWED - 1.0) * base / self._correction
        low, high = 1, _MOST_ROWS
        while low < high:  # the most rows that cost no more
            middle = (low + high + 1) // 2
            if self._table.cost(n_rows + middle) <= most:
                low = middle
            else:
                high = middle - 1
        self._n_given = low
        return low

    def record(self, n_rows: int, n_prompt: int, seconds: float) -> None:
        """Take note of a pass of so many decoding rows, drafts included, and prompt rows."""
        if n_rows == 0:
            return
        base = self._table.cost(n_rows)
        if n_prompt == 0:
            self._n_unseen = 0
            self._plain.append(seconds / base)
            return
        expected = self._table.cost(n_rows + n_prompt) - base
        if self._plain and expected > 0.0 and (n_prompt >= self._n_given or expected >= _TELLING_SHARE * base):
            measured = seconds / min(self._plain) - base
            self._corrections.append(min(max(measured / expected, _LEAST), _GREATEST))

    @property
    def _correction(self) -> float:
        """What prompt rows really add, in what the table says that they do. It is quicker to rise than to fall."""
        return sorted(self._corrections)[len(self._corrections) // 2]
