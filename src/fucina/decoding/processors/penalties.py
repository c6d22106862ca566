"""Penalties for tokens seen lately: repeat, frequency and presence, over a window of the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fucina.decoding.params import SamplingParams
from fucina.decoding.scans import RowScans

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Penalties:
    """The penalties of one request. They depend on the history alone, so there is nothing to rewind."""

    def __init__(self, params: SamplingParams, scans: RowScans) -> None:
        self._scans = scans
        self._window = params.penalty_window
        self._strengths = (params.repeat_penalty, params.frequency_penalty, params.presence_penalty)

    def apply(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:
        """Lower in place the logits (vocab,) of tokens in the last `penalty_window` of history, prompt included.

        Each distinct token once: l = l / repeat if l > 0 else l * repeat; l -= occurrences * frequency + presence.
        """
        window = history if self._window is None else history[-self._window :]
        self._scans.penalize(logits, window, *self._strengths)
