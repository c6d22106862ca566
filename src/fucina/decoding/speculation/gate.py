"""The gate that keeps speculation from losing: it closes when verifying costs more than it gives, and looks again."""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Literal, NamedTuple

from fucina.decoding.speculation.options import SpeculationOptions

#: on: drafts are tried. off: plain steps until the next probe. probing: a few verifies decide.
GateState = Literal["on", "off", "probing"]


class Verify(NamedTuple):
    """One verify: tokens committed, drafts accepted and tried, and its cost in plain steps."""

    committed: int
    accepted: int
    drafted: int
    cost: float


_NOTHING = Verify(0, 0, 0, 0.0)


class CostGate:
    """Decides for one sequence, from the estimated speed-up: tokens committed per plain step's worth of time.

    Tokens per step alone would not do: eight drafts that give 1.6 tokens look like a gain and cost three steps.
    """

    def __init__(self, options: SpeculationOptions) -> None:
        self._options = options
        self._window: deque[Verify] = deque()
        self._sums = _NOTHING  # of the window; kept, since they are asked for at every step
        self.state: GateState = "on"
        self._backoff = options.reprobe_after
        self._n_off = self._n_probes_left = 0

    @property
    def estimated_speedup(self) -> float | None:
        """Committed tokens per cost over the last verifies; None while there are too few to judge."""
        if len(self._window) < 2 or self._sums.drafted < self._options.min_window_drafted:
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
        self._window.append(verify)
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
        self._sums = _NOTHING

    def _close(self, backoff: int) -> None:
        self.state, self._backoff, self._n_off = "off", backoff, 0
