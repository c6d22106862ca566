"""How many prompt rows may run beside sequences that are writing, so that none of these is slowed down too much.

A table of what passes cost says with how many to begin. What passes really take here and now, at these depths, with
whatever else the machine does, says how to go on. Only the speed depends on it, never a result.
"""

from __future__ import annotations

from collections import deque

from fucina.decoding.speculation.costs import CostTable

#: A pass with prompt rows takes at most this many times what it would take without them, to the nearest row: the bound
#: on what another's prompt adds to the time of a token. One row is always let in: every prompt is read in the end.
MOST_SLOWED = 2.0
# What is assumed where nothing was measured: 16 rows more take as long again as one row.
_ASSUMED = CostTable([(1, 1.0), (17, 2.0)])
# Of so many timings of passes without prompts the least counts: whatever disturbs a clock only ever adds to it.
_TIMINGS = 4
# Of so many timings of a prompt row the second least counts: a difference, whose least may come of a disturbed pass
# without prompts.
_ROW_TIMINGS = 6
# No row is taken to be cheaper than this share of a pass.
_LEAST_SHARE = 1e-3
# After so many passes with prompts one goes without, to see again what that takes.
_PASSES_UNSEEN = 16
# A budget grows at most by this factor and a row from pass to pass, so that what is misjudged is seen in time.
_GROWTH = 1.25
# Nothing is gained by more rows; it is as many as an engine may ever be asked to take.
_MOST_ROWS = 8192


class Pacing:
    """The row budget of prompts beside decoding sequences."""

    def __init__(self, table: CostTable | None = None) -> None:
        self._plain_s: deque[float] = deque(maxlen=_TIMINGS)  # of passes without prompts, in the table's unit
        self._row_s: deque[float] = deque(maxlen=_ROW_TIMINGS)
        self.learn(table or _ASSUMED)

    def learn(self, table: CostTable) -> None:
        """Go by this table from now on."""
        self._table = table
        self._plain_s.clear()
        self._row_s.clear()
        self._n_given = _MOST_ROWS  # the last budget
        self._n_unseen = _PASSES_UNSEEN  # passes with prompts since one without

    def prompt_rows(self, n_rows: int) -> int:
        """How many prompt rows the next pass may have beside `n_rows` decoding ones; 0 to see what these take alone."""
        if self._n_unseen >= _PASSES_UNSEEN:
            self._n_unseen = 0
            return 0
        self._n_unseen += 1
        if self._plain_s and self._row_s:
            row_s = sorted(self._row_s)[:2][-1]
            spare_s = (MOST_SLOWED - 1.0) * min(self._plain_s) * self._table.cost(n_rows)
            rows = min(round(spare_s / row_s), int(self._n_given * _GROWTH) + 1, _MOST_ROWS)
        else:
            rows = self._rows_by_table(n_rows)
        self._n_given = max(rows, 1)
        return self._n_given

    def record(self, n_rows: int, n_prompt: int, seconds: float) -> None:
        """Take note of a pass of so many decoding rows, drafts included, and prompt rows."""
        if n_rows == 0:
            return
        base = self._table.cost(n_rows)
        if n_prompt == 0:
            self._n_unseen = 0
            self._plain_s.append(seconds / base)
        elif self._plain_s and 2 * n_prompt >= self._n_given:  # the last few of a prompt say little
            plain_s = min(self._plain_s) * base
            self._row_s.append(max((seconds - plain_s) / n_prompt, _LEAST_SHARE * plain_s))

    def _rows_by_table(self, n_rows: int) -> int:
        """The most rows that cost no more than the bound allows, by the table."""
        most = MOST_SLOWED * self._table.cost(n_rows)
        low, high = 0, _MOST_ROWS
        while low < high:
            middle = (low + high + 1) // 2
            if self._table.cost(n_rows + middle) <= most:
                low = middle
            else:
                high = middle - 1
        return low
