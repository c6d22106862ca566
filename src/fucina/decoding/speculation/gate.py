"""The gate that keeps speculation from losing: it closes when verifying costs more than it gives, and looks again."""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Literal, NamedTuple

from fucina.decoding.speculation.options import SpeculationOptions

#: on: drafts are tried. off: plain steps until the next probe. probing: a few verifies decide.
GateState = Literal["on", "off", "probing"]


class Verify(NamedTuple):
    """One verify: tokens committed, drafts accepted and tried, and its cost in plain steps. Or a sum of several."""

    committed: float
    accepted: float
    drafted: float
    cost: float


_NOTHING = Verify(0, 0, 0, 0.0)
# What a verify leaves of the memory of those before it.
_FADE = 0.9


class GateMemory:
    """What the latest verifies of all gates that share it gave and cost: a new gate begins with their mean.

    It counts as one verify. After many losses a gate so begins with a small budget, and two verifies of its own may
    close it; one gain outweighs it. After many gains the first guesses that are wrong do not close it.
    """

    def __init__(self) -> None:
        self._n = 0.0
        self._sums = _NOTHING

    def record(self, verify: Verify) -> None:
        """Take note of a verify."""
        self._n = self._n * _FADE + 1.0
        self._sums = Verify(*[old * _FADE + new for old, new in zip(self._sums, verify, strict=True)])

    def opening(self) -> Verify | None:
        """What stands in a new gate's window; None while nothing is known."""
        return Verify(*[each / self._n for each in self._sums]) if self._n else None


class CostGate:
    """Decides for one sequence, from the estimated speed-up: tokens committed per plain step's worth of time.

    Tokens per step alone would not do: eight drafts that give 1.6 tokens look like a gain and cost three steps.
    """

    def __init__(self, options: SpeculationOptions, memory: GateMemory | None = None) -> None:
        """`memory` is told of every verify, and is what the window begins with."""
        self._options, self._memory = options, memory
        opening = memory.opening() if memory is not None else None
        self._n_own = 0  # verifies in the window that are this sequence's
        self._window: deque[Verify] = deque([] if opening is None else [opening])
        self._sums = opening or _NOTHING  # of the window; kept, since they are asked for at every step
        self.state: GateState = "on"
        self._backoff = options.reprobe_after
        self._n_off = self._n_probes_left = 0

    @property
    def estimated_speedup(self) -> float | None:
        """Committed tokens per cost over the last verifies; None while there are too few to judge."""
        if self._n_own < 2 or self._sums.drafted < self._options.min_window_drafted:
            return None
        return self._sums.committed / self._sums.cost

    def allows(self) -> bool:
        """Whether this step may try drafts. Call it once a step: it counts the steps until the next probe."""
        if self.state == "off":
            self._n_off += 1
            if self._n_off < self._backoff:
                return False
            self.state, self._n_probes_left = "probing", self._options.probe_steps
            self._clear()
        return True

    def budget(self) -> int:
        """How many drafts to try at most: fewer while they are wrong."""
        options = self._options
        _, n_accepted, n_drafted, _ = self._sums
        if not options.adapt_budget or n_drafted == 0:
            return options.max_draft
        wanted = 2 + ceil(n_accepted * options.max_draft / n_drafted)
        return min(options.max_draft, max(options.min_draft, wanted))

    def record(self, verify: Verify) -> None:
        """Take note of a verify, and decide."""
        if self._memory is not None:
            self._memory.record(verify)
        self._window.append(verify)
        self._n_own = min(self._n_own + 1, self._options.rate_window)
        old = self._window.popleft() if len(self._window) > self._options.rate_window else _NOTHING
        self._sums = Verify(
            self._sums.committed + verify.committed - old.committed,
            self._sums.accepted + verify.accepted - old.accepted,
            self._sums.drafted + verify.drafted - old.drafted,
            self._sums.cost + verify.cost - old.cost,
        )
        speedup = self.estimated_speedup
        losing = speedup is not None and speedup < self._options.min_speedup
        if self.state == "on":
            if losing:
                self._close(self._options.reprobe_after)
        elif self.state == "probing":
            self._n_probes_left -= 1
            if losing:
                self._fail()
            elif self._n_probes_left == 0:
                if speedup is not None and speedup >= self._options.min_speedup + self._options.probe_margin:
                    self.state = "on"
                else:
                    self._fail()

    def _fail(self) -> None:
        self._close(min(2 * self._backoff, self._options.reprobe_max))
        self._clear()

    def _clear(self) -> None:
        self._window.clear()
        self._n_own = 0
        self._sums = _NOTHING

    def _close(self, backoff: int) -> None:
        self.state, self._backoff, self._n_off = "off", backoff, 0
