"""Tokens that must not come at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fucina.decoding.params import checked_token_ids
from fucina.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class BannedTokens:
    """Forbids tokens for the whole answer. An end token among them is forbidden too: give the answer a `max_tokens`."""

    def __init__(self, ids: Collection[int]) -> None:
        """Raises ConfigError for what is no token id."""
        self._ids = np.array(sorted(checked_token_ids("banned tokens", ids)), np.intp)
        self._greatest = int(self._ids.max(initial=-1))

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:  # noqa: ARG002
        """Forbid them. Raises ConfigError for ids that the model does not have."""
        check_range("banned tokens", self._greatest, logits)
        logits[self._ids] = -np.inf

    def commit(self, token: int) -> None:
        """Nothing to learn: a ban is the same for every position."""

    def reset(self) -> None:
        """Nothing to forget."""


def check_range(option: str, greatest: int, logits: NDArray[np.float32]) -> None:
    """Refuse an id that is none of the model's; only now it is known how many those are. Raises ConfigError."""
    if greatest >= len(logits):
        raise ConfigError(option, got=greatest, expected=f"token ids of this model, 0 to {len(logits) - 1}")
