"""An answer of a least length: no end before so many tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fucina.decoding.params import COUNT_LIMIT, integer_of
from fucina.decoding.processors.banned import BannedTokens
from fucina.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class MinTokens:
    """Forbids the tokens that end an answer until `n` tokens were given: MinTokens(20, model.tokenizer.eog_ids).

    Stop strings are text, not tokens: they may end an answer before.
    """

    def __init__(self, n: int, end_ids: Collection[int]) -> None:
        """Raises ConfigError."""
        least = integer_of(n)
        if least is None or not 0 <= least <= COUNT_LIMIT:
            raise ConfigError("minimum of tokens", got=n, expected=f"a whole number from 0 to {COUNT_LIMIT}")
        self._n, self._ends = least, BannedTokens(end_ids)
        self._n_given = 0

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:
        """Forbid an end while it would come too early. Raises ConfigError for ids that the model does not have."""
        if self._n_given < self._n:
            self._ends.process(logits, history)

    def commit(self, token: int) -> None:  # noqa: ARG002
        """Count it."""
        self._n_given += 1

    def reset(self) -> None:
        """Count from zero."""
        self._n_given = 0
