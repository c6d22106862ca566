"""What the masks of an answer cost, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MaskCosts:
    """What the masks of one answer took: how many there were, seconds of computing, and of waiting for them.

    What was computed and not waited for was hidden behind forward passes.
    """

    masks: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0

    @property
    def hidden(self) -> float:
        """The share of the computing that nobody waited for; 0 without any."""
        return max(0.0, 1.0 - self.waited_s / self.seconds) if self.seconds > 0.0 else 0.0
