"""How many prompt rows may run beside sequences that are writing, so that none of these is slowed down too much.

A table of what passes cost says with how many to begin. What passes really take here and now, at the depths that
prompts have, with whatever else the machine does, says how to go on. Only the speed depends on it, never a result.
"""

from __future__ import annotations

from collections import deque

from fucina.decoding.speculation.costs import CostTable

#: A pass with prompt rows is to take at most this many times what it would take without them: the bound on what
#: another's prompt adds to the time of a token. One row is always let in: every prompt is read in the end.
MOST_SLOWED = 2.2
# What is assumed where nothing was measured: 16 rows more take as long again as one row.
_ASSUMED = CostTable([(1, 1.0), (17, 2.0)])
# Of so many timings of passes without prompts the least counts: whatever disturbs a clock only ever adds to it.
_TIMINGS = 4
# Of so many timings of prompt rows at one depth the second least counts: a difference, whose least may come of a
# disturbed pass without prompts.
_ROW_TIMINGS = 6
# No row is taken to be cheaper than this share of a pass.
_LEAST_SHARE = 1e-3
# After so many passes with prompts one goes without, to see again what that takes.
_PASSES_UNSEEN = 16
# A budget grows at most by this factor and a row from pass to pass, so that what is misjudged is seen in time.
_GROWTH = 1.25
# Some numbers of rows are dearer than their neighbors, as kernels work in groups. One that was this much above the
# bound, so often without being below it, is not tried again for so many passes with prompts.
_TOO_SLOW, _MISSES, _BANNED = 1.1, 3, 500
# Nothing is gained by more rows; it is as many as an engine may ever be asked to take.
_MOST_ROWS = 8192
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
        self._row_s: dict[int, deque[float]] = {}  # what a prompt row added, by stretches of depth
        self._bans = _Bans()
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
        if self._row_s:
            most = int(min((self.spare_s(n_rows) - spent_s) / self._seconds_of_a_row(depth), _MOST_ROWS))
            most = min(most, int(self._n_given * _GROWTH) + 1, self._bans.most_rows(depth // _STRETCH))
        else:
            most = self._rows_by_table(n_rows)
        self._n_given = max(most, 1)
        return self._n_given

    def spare_s(self, n_rows: int) -> float:
        """Seconds that may be added to the next pass of `n_rows` decoding rows; 0 if nobody knows yet."""
        return (MOST_SLOWED - 1.0) * self._table.cost(n_rows) * min(self._plain_s, default=0.0)

    def spend(self, seconds: float) -> None:
        """Take note that the next pass comes so much later: there is less left for prompt rows."""
        self._spent_s += seconds

    def record(self, n_rows: int, n_prompt: int, seconds: float, depth: int = 0) -> None:
        """Take note of a pass of so many decoding rows, drafts included, and prompt rows behind `depth` positions."""
        if n_rows == 0:
            return
        base = self._table.cost(n_rows)
        if n_prompt == 0:
            self._n_unseen = 0
            self._plain_s.append(seconds / base)
        elif self._plain_s and 2 * n_prompt >= self._n_given:  # the last few of a prompt say little
            plain_s, stretch = min(self._plain_s) * base, depth // _STRETCH
            timings = self._row_s.setdefault(stretch, deque(maxlen=_ROW_TIMINGS))
            timings.append(max((seconds - plain_s) / n_prompt, _LEAST_SHARE * plain_s))
            self._bans.tried(n_prompt, stretch, missed=seconds > _TOO_SLOW * MOST_SLOWED * plain_s)

    def _seconds_of_a_row(self, depth: int) -> float:
        """What a prompt row at this depth adds to a pass, as far as is known."""
        stretch = depth // _STRETCH
        nearest = stretch if stretch in self._row_s else min(self._row_s, key=lambda known: abs(known - stretch))
        timings = list(self._row_s[nearest])
        # a disturbance seldom hits twice in a row; what has become dearer does
        row_s = max(sorted(timings)[:2][-1], min(timings[-2:]))
        return row_s * (_TWICE_AS_DEAR + stretch * _STRETCH) / (_TWICE_AS_DEAR + nearest * _STRETCH)

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


class _Bans:
    """Numbers of prompt rows that turned out to take too long, by stretch of depth."""

    def __init__(self) -> None:
        self._n_tried, self._is_missed = 0, False
        self._misses: dict[tuple[int, int], int] = {}
        self._limits: dict[int, tuple[int, int]] = {}  # the most rows, and until when

    def most_rows(self, stretch: int) -> int:
        """As many as are not banned."""
        rows, until = self._limits.get(stretch, (_MOST_ROWS, 0))
        return rows if self._n_tried < until else _MOST_ROWS

    def tried(self, n_prompt: int, stretch: int, *, missed: bool) -> None:
        """Take note of a pass with so many prompt rows, and whether it took too long."""
        self._n_tried += 1
        was_missed, self._is_missed = self._is_missed, missed
        if not missed:
            self._misses.pop((n_prompt, stretch), None)
        elif not was_missed:  # while everything is slow, no number is to blame
            n_misses = self._misses[n_prompt, stretch] = self._misses.get((n_prompt, stretch), 0) + 1
            if n_misses == _MISSES:
                del self._misses[n_prompt, stretch]
                self._limits[stretch] = (n_prompt - 1, self._n_tried + _BANNED)
