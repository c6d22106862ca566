"""How many prompt rows may run beside sequences that are writing, so that none of these is slowed down too much.

A table of what passes cost gives the price of more rows in a short context. What passes really took here, at the depths
that prompts had, with whatever else the machine does, says how much dearer they are. Only the speed depends on it,
never a result.
"""

from __future__ import annotations

from collections import deque

from fucina.decoding.speculation.costs import CostTable

#: A pass with prompt rows is to take at most this many times what it would take without them: the bound on what
#: another's prompt adds to the time of a token. One row is always let in: every prompt is read in the end.
MOST_SLOWED = 2.3
# What is assumed where nothing was measured: 16 rows more take as long again as one row.
_ASSUMED = CostTable([(1, 1.0), (17, 2.0)])
# Of so many timings of passes without prompts the least counts: whatever disturbs a clock only ever adds to it.
_TIMINGS = 4
# Of so many timings of prompt rows the second least counts: a difference, whose least may come of a disturbed pass
# without prompts.
_ROW_TIMINGS = 6
# What rows add to a pass is never taken to be less than this share of it for each.
_LEAST_SHARE = 1e-3
# After so many passes with prompts one goes without, to see again what that takes.
_PASSES_UNSEEN = 16
# A budget grows at most by this factor and a row from pass to pass, so that what is misjudged is seen in time.
_GROWTH = 1.25
# Nothing is gained by more rows; it is as many as an engine may ever be asked to take.
_MOST_ROWS = 8192
# Positions whose rows are taken to be equally dear, and where they are assumed to be twice as dear as at the start.
_STRETCH, _TWICE_AS_DEAR = 512, 4096


class Pacing:
    """The row budget of prompts beside decoding sequences."""

    def __init__(self, table: CostTable | None = None) -> None:
        self._plain_s: deque[float] = deque(maxlen=_TIMINGS)  # of passes without prompts, in the table's unit
        self.learn(table or _ASSUMED)

    def learn(self, table: CostTable) -> None:
        """Go by this table from now on."""
        self._table = table
        self._plain_s.clear()
        self._prices: dict[int, deque[float]] = {}  # what rows cost of the table's price, by stretches of depth
        self._n_given = _MOST_ROWS  # the last budget
        self._n_unseen = _PASSES_UNSEEN  # passes with prompts since one without
        self._spent_s = 0.0

    def prompt_rows(self, n_rows: int, depth: int = 0) -> int:
        """How many prompt rows the next pass may have beside `n_rows` decoding ones; 0 to see what these take alone.

        `depth` positions precede the prompt's rows: the more, the dearer is each.
        """
        spent_s, self._spent_s = self._spent_s, 0.0
        if self._n_unseen >= _PASSES_UNSEEN:
            self._n_unseen = 0
            return 0
        self._n_unseen += 1
        spare = MOST_SLOWED - 1.0
        if self._plain_s:
            spare -= spent_s / self._pass_s(n_rows)
        if spare <= 0.0:
            return 0
        most = self._rows_that_add(spare / self._price(depth), n_rows)
        # until something was timed the table is believed
        rows = most if not self._prices else min(most, int(self._n_given * _GROWTH) + 1)
        self._n_given = max(rows, 1)
        return self._n_given

    def spare_s(self, n_rows: int) -> float:
        """Seconds that may be added to the next pass of `n_rows` decoding rows; 0 if nobody knows yet."""
        return (MOST_SLOWED - 1.0) * self._pass_s(n_rows) if self._plain_s else 0.0

    def spend(self, seconds: float) -> None:
        """Take note that the next pass comes so much later: there is less left for prompt rows."""
        self._spent_s += seconds

    def record(self, n_rows: int, n_prompt: int, seconds: float, depth: int = 0) -> None:
        """Take note of a pass of so many decoding rows, drafts included, and prompt rows behind `depth` positions."""
        if n_rows == 0:
            return
        if n_prompt == 0:
            self._n_unseen = 0
            self._plain_s.append(seconds / self._table.cost(n_rows))
        elif self._plain_s and 2 * n_prompt >= self._n_given:  # the last few of a prompt say little
            added = max(seconds / self._pass_s(n_rows) - 1.0, _LEAST_SHARE * n_prompt)
            prices = self._prices.setdefault(depth // _STRETCH, deque(maxlen=_ROW_TIMINGS))
            prices.append(added / self._added(n_rows, n_prompt))

    def _pass_s(self, n_rows: int) -> float:
        """What a pass without prompts takes."""
        return min(self._plain_s) * self._table.cost(n_rows)

    def _added(self, n_rows: int, n_prompt: int) -> float:
        """What prompt rows add to a pass, by the table, in passes without them."""
        base = self._table.cost(n_rows)
        return max(self._table.cost(n_rows + n_prompt) / base - 1.0, _LEAST_SHARE * n_prompt)

    def _price(self, depth: int) -> float:
        """What rows at this depth cost of the table's price, as far as is known."""
        if not self._prices:
            return 1.0
        stretch = depth // _STRETCH
        nearest = min(self._prices, key=lambda known: abs(known - stretch))
        prices = self._prices[nearest]
        # a disturbance seldom hits twice in a row; what has become dearer does
        price = max(sorted(prices)[:2][-1], min(list(prices)[-2:]))
        return price * (1.0 + stretch * _STRETCH / _TWICE_AS_DEAR) / (1.0 + nearest * _STRETCH / _TWICE_AS_DEAR)

    def _rows_that_add(self, most: float, n_rows: int) -> int:
        """The most rows that add no more than this to a pass, by the table, in passes without them."""
        low, high = 0, _MOST_ROWS
        while low < high:
            middle = (low + high + 1) // 2
            if self._added(n_rows, middle) <= most:
                low = middle
            else:
                high = middle - 1
        return low
