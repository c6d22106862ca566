"""What verifying drafts costs, in plain steps: a measured table gives the shape, live timings rescale it.

The table alone would not know that another program shares the machine today; timings alone would let one stall of the
scheduler end a run that wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, isfinite

from fucina.decoding.speculation.crowd import Crowd
from fucina.errors import ConfigError

# Rows that are looked up instead of interpolated.
_DENSE = 128
# What drafts must promise: a tenth more than they cost, for neither price nor probability is known any better.
_WORTHWHILE = 1.1
# What they must promise where several sequences share a pass: whoever gets on faster than the others leaves them alone
# in the end, with passes that are hardly shorter for the row that is gone. Only if all get on is a row saved worth its
# share of a pass.
_WORTHWHILE_TOGETHER = 1.25
# The shares of a new sample in the running means of a plain step's seconds and of the scale, and the scale's limits.
_PLAIN_SHARE, _SCALE_SHARE = 0.25, 0.2
_LEAST_SCALE, _GREATEST_SCALE = 0.25, 4.0
# What a plain step takes off the scale's distance from 1: what was true of verifies is forgotten while there are none.
_RELAXED = 0.01
# Timings of which the least counts: whatever disturbs a clock only ever adds to it. The scale waits for a few.
_TIMINGS, _FEWEST_VERIFIES = 8, 4
# Rows over which the price of one is averaged where several sequences share a pass, for there it is a small difference
# between great times; and the steps in which prices and probabilities are told apart.
_AVERAGED, _PRICE_STEPS, _CHANCE_STEPS = 8, 128, 64
# How often the surest drafts are right: those of a long match, 19 times of 20.
_SUREST = 0.95
# Answers that are kept.
_MOST_KEPT = 4096


class CostTable:
    """The time of a pass by its rows, in passes of one row: linear between the measured points and past the last."""

    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        """Take (rows, time) in ascending rows, the first of one row, in any unit. Raises ConfigError."""
        rows = [n for n, _ in points]
        if not rows or rows[0] != 1 or any(a >= b for a, b in pairwise(rows)):
            raise ConfigError("cost table", got=f"rows {rows}", expected="ascending numbers of rows, beginning with 1")
        if not all(isfinite(time) and time > 0.0 and isfinite(time / points[0][1]) for _, time in points):
            raise ConfigError("cost table", got=[time for _, time in points], expected="positive times")
        self.points = tuple((n, time / points[0][1]) for n, time in points)
        self._dense = [0.0, *(self._interpolated(n) for n in range(1, _DENSE + 1))]
        self._best: dict[tuple[int, int], int] = {}

    def cost(self, n_rows: int) -> float:
        """A pass of so many rows, in passes of one row."""
        return self._dense[n_rows] if n_rows <= _DENSE else self._interpolated(n_rows)

    def verify_cost(self, n_drafts: int, n_rows: int = 1) -> float:
        """A sequence's step with so many drafts, in its plain steps, where the pass has `n_rows` rows without them."""
        return self.cost(1 + n_drafts) if n_rows == 1 else 1.0 + n_drafts * self.row_price(n_rows)

    def row_price(self, n_rows: int) -> float:
        """A row more in a pass of n rows, in plain steps of one of its n sequences, each worth cost(n) / n."""
        base = self.cost(n_rows)
        return n_rows * (self.cost(n_rows + _AVERAGED) - base) / _AVERAGED / base

    def best_length(self, probability: float, most: int) -> int:
        """How many drafts of at most `most` give one sequence alone the most tokens for their cost.

        Each is right with this probability. Expected are 1 + p + p^2 + ... tokens, for drafts after the first wrong one
        are lost. 0 where no number is worthwhile. It asks the table alone: a price that is stale because nothing was
        drafted must not stay so.
        """
        key = (int(probability * _CHANCE_STEPS), most)
        best = self._best.get(key)
        if best is None:
            best = self._best[key] = _best_length((key[0] + 0.5) / _CHANCE_STEPS, most, self.verify_cost, _WORTHWHILE)
        return best

    def _interpolated(self, n_rows: int) -> float:
        points = self.points
        if len(points) == 1:
            return 1.0
        high = next((i for i, (n, _) in enumerate(points) if n >= n_rows), len(points) - 1)
        (n0, cost0), (n1, cost1) = points[max(high, 1) - 1], points[max(high, 1)]
        slope = (cost1 - cost0) / (n1 - n0)
        # a last segment that falls is noise, and must not make endless rows free
        return cost1 + max(slope, 0.0) * (n_rows - n1) if n_rows > n1 else cost0 + slope * (n_rows - n0)


class StepCosts:
    """A table's prices as they are now. One per model: all its sequences run on the same machine."""

    def __init__(self, table: CostTable) -> None:
        self.table = table
        self.scale = 1.0
        self.plain_s = 0.0  # the running mean of a plain step; 0: none yet
        self._plain_timings: deque[float] = deque(maxlen=_TIMINGS)
        self._samples: deque[float] = deque(maxlen=_TIMINGS)
        self._crowds: dict[int, Crowd] = {}  # by their sequences: never more of them than rows of a pass
        self._best: dict[tuple[int, int, int], int] = {}
        self._limits: dict[int, float] = {}  # the price of a row up to which the surest drafts pay in a crowd

    def verify_cost(self, n_drafts: int, n_rows: int = 1) -> float:
        """The price of `CostTable.verify_cost` as timings have it, and never less than the step that it replaces."""
        if n_rows > 1:
            return 1.0 + n_drafts * self._crowd(n_rows).row_price
        return max(self.scale * self.table.verify_cost(n_drafts), 1.0)

    def best_length(self, probability: float, most: int, n_rows: int = 1) -> int:
        """How many drafts of at most `most` to try, each right with this probability; 0: none is worthwhile.

        Alone a sequence goes by the table; where several share a pass, by what rows took there.
        """
        if n_rows == 1:
            return self.table.best_length(probability, most)
        price = ceil(self._crowd(n_rows).row_price * _PRICE_STEPS)
        key = (int(probability * _CHANCE_STEPS), most, price)
        best = self._best.get(key)
        if best is None:
            if len(self._best) >= _MOST_KEPT:
                self._best.clear()
            chance = (key[0] + 0.5) / _CHANCE_STEPS
            row_price = price / _PRICE_STEPS
            best = _best_length(chance, most, lambda k: 1.0 + k * row_price, _WORTHWHILE_TOGETHER)
            self._best[key] = best
        return best

    def may_pay(self, most: int, n_rows: int) -> bool:
        """Whether the surest drafts would be worthwhile. Where several share a pass even asking for others is not."""
        if n_rows == 1:
            return True
        limit = self._limits.get(most)
        if limit is None:
            limit = self._limits[most] = _dearest(most)
        return self._crowd(n_rows).row_price < limit

    def record_plain(self, seconds: float, n_rows: int = 1) -> None:
        """Take note of a pass without drafts, one row for each of its sequences."""
        if n_rows > 1:
            self._crowd(n_rows).record_plain(seconds)
            return
        self._plain_timings.append(seconds)
        timing = min(self._plain_timings)
        self.plain_s = timing if self.plain_s == 0.0 else self.plain_s + _PLAIN_SHARE * (timing - self.plain_s)
        self.scale += _RELAXED * (1.0 - self.scale)

    def record_verify(self, n_drafts: int, seconds: float, n_rows: int = 1) -> None:
        """Take note of a pass with so many drafts in all, and `n_rows` rows besides, one for each of its sequences."""
        if n_rows > 1:
            self._crowd(n_rows).record_verify(n_drafts, seconds)
        elif self.plain_s > 0.0:
            measured = max(seconds / self.plain_s, 1.0)
            self._samples.append(_clamped(measured / self.table.cost(1 + n_drafts)))
            if len(self._samples) >= _FEWEST_VERIFIES:
                self.scale = _clamped(_SCALE_SHARE * min(self._samples) + (1.0 - _SCALE_SHARE) * self.scale)

    def _crowd(self, n_rows: int) -> Crowd:
        crowd = self._crowds.get(n_rows)
        if crowd is None:
            crowd = self._crowds[n_rows] = Crowd(n_rows, self.table.row_price(n_rows))
        return crowd


def _best_length(probability: float, most: int, cost: Callable[[int], float], worthwhile: float) -> int:
    """The number of drafts with the most tokens for their cost; 0 where none promises more than `worthwhile` times."""
    tokens, gains = 1.0, [worthwhile]
    for k in range(1, most + 1):
        tokens += probability**k
        gains.append(tokens / cost(k))
    return gains.index(max(gains))


def _dearest(most: int) -> float:
    """The price of a row below which some number of the surest drafts, at most so many, is worthwhile in a crowd."""
    tokens, limit = 1.0, 0.0
    for k in range(1, most + 1):
        tokens += _SUREST**k
        limit = max(limit, (tokens / _WORTHWHILE_TOGETHER - 1.0) / k)
    return limit


def _clamped(scale: float) -> float:
    return min(max(scale, _LEAST_SCALE), _GREATEST_SCALE)
