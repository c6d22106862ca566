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
# Of so many timings of as many prompt rows at one depth the second least counts: a difference, whose least may come of
# a disturbed pass without prompts. After so many passes they are too old to go by.
_ROW_TIMINGS, _OLD = 6, 500
# A row is never taken to add less than this share of a pass of one row.
_LEAST_SHARE = 1e-3
# After so many passes with prompts one goes without, to see again what that takes.
_PASSES_UNSEEN = 16
# A budget grows at most by this factor and a row from pass to pass, so that what is misjudged is seen in time.
_GROWTH = 1.25
# Nothing is gained by more rows; it is as many as an engine may ever be asked to take.
_MOST_ROWS = 8192
# Up to so many rows each number has its own price, for kernels work in groups of rows; then those of one octave share.
_SINGLE_ROWS = 8
# Positions whose rows are taken to be equally dear, and where they are assumed to be twice as dear as at the start.
_STRETCH, _TWICE_AS_DEAR = 512, 4096


class Pacing:
    """The row budget of prompts beside decoding sequences."""

    def __init__(self, table: CostTable | None = None) -> None:
        self._plain_s: deque[float] = deque(maxlen=_TIMINGS)  # of passes without prompts, by the table's unit
        self.learn(table or _ASSUMED)

    def learn(self, table: CostTable) -> None:
        """Go by this table from now on."""
        self._table = table
        self._plain_s.clear()
        self._prices: dict[int, dict[int, _Price]] = {}  # by the number of rows, then by stretches of depth
        self._n_given = _MOST_ROWS  # the last budget
        self._n_passes = 0  # with prompts
        self._n_unseen = _PASSES_UNSEEN  # of these since one without
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
        spare = (MOST_SLOWED - 1.0) * self._table.cost(n_rows)
        if self._plain_s:
            spare = spare * min(self._plain_s) - spent_s
        if spare <= 0.0:
            return 0
        low, high = 0, _MOST_ROWS
        if self._prices:  # until something was timed the table is believed
            high = min(high, int(self._n_given * _GROWTH) + 1)
        while low < high:
            middle = (low + high + 1) // 2
            if self._added(n_rows, middle) * self._price(middle, depth) <= spare:
                low = middle
            else:
                high = middle - 1
        self._n_given = max(low, 1)
        return self._n_given

    def spare_s(self, n_rows: int) -> float:
        """Seconds that may be added to the next pass of `n_rows` decoding rows; 0 if nobody knows yet."""
        return (MOST_SLOWED - 1.0) * self._table.cost(n_rows) * min(self._plain_s) if self._plain_s else 0.0

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
        elif self._plain_s:
            self._n_passes += 1
            plain_s = min(self._plain_s)
            added_s = max(seconds - plain_s * self._table.cost(n_rows), _LEAST_SHARE * plain_s * n_prompt)
            stretches = self._prices.setdefault(_group(n_prompt), {})
            price = stretches.setdefault(depth // _STRETCH, _Price())
            price.timed_at = self._n_passes
            price.timings.append(added_s / self._added(n_rows, n_prompt))

    def _added(self, n_rows: int, n_prompt: int) -> float:
        """What prompt rows add to a pass by the table, in its unit."""
        return max(self._table.cost(n_rows + n_prompt) - self._table.cost(n_rows), _LEAST_SHARE * n_prompt)

    def _price(self, n_prompt: int, depth: int) -> float:
        """What the table's unit takes where so many prompt rows are added at this depth, as far as is known."""
        if not self._prices:
            return min(self._plain_s, default=1.0)
        group, stretch = _group(n_prompt), depth // _STRETCH
        stretches = self._prices.get(group) or self._prices[min(self._prices, key=lambda known: abs(known - group))]
        nearest = stretch if stretch in stretches else min(stretches, key=lambda known: abs(known - stretch))
        price = stretches[nearest]
        if self._n_passes - price.timed_at <= _OLD:
            return price.now() * _dearness(stretch) / _dearness(nearest)
        del stretches[nearest]
        if not stretches:
            self._prices = {known: others for known, others in self._prices.items() if others}
        return self._price(n_prompt, depth)


class _Price:
    """Timings of one number of rows at one depth; `timed_at` tells when the newest was taken."""

    def __init__(self) -> None:
        self.timings: deque[float] = deque(maxlen=_ROW_TIMINGS)
        self.timed_at = 0

    def now(self) -> float:
        """What to expect: a disturbance seldom hits twice in a row; what has become dearer does."""
        return max(sorted(self.timings)[:2][-1], min(list(self.timings)[-2:]))


def _group(n_rows: int) -> int:
    """Numbers of rows that have one price."""
    return n_rows if n_rows <= _SINGLE_ROWS else _SINGLE_ROWS + (n_rows // _SINGLE_ROWS).bit_length() - 1


def _dearness(stretch: int) -> float:
    return 1.0 + stretch * _STRETCH / _TWICE_AS_DEAR
