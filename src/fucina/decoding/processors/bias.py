"""Making some tokens likelier or less likely: a bias on their logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fucina.decoding.params import STRENGTH_LIMIT, checked_token_ids, real_of
from fucina.decoding.processors.banned import check_range
from fucina.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LogitBias:
    """Adds a strength to the logits of chosen tokens: {id: strength}, at most 1000 up or down.

    Five is a strong wish, not a guarantee; `BannedTokens` is for tokens that must not come at all.
    """

    def __init__(self, strengths: Mapping[int, float]) -> None:
        """Raises ConfigError for what is no token id or no finite strength."""
        if not isinstance(strengths, Mapping):
            raise ConfigError("logit bias", got=strengths, expected="a mapping from token ids to strengths")
        checked_token_ids("logit bias", list(strengths))
        self._ids = np.fromiter(strengths.keys(), np.intp, len(strengths))
        self._strengths = np.array([_checked_strength(strength) for strength in strengths.values()], np.float32)
        self._greatest = int(self._ids.max(initial=-1))

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:  # noqa: ARG002
        """Add the strengths. Raises ConfigError for ids that the model does not have."""
        check_range("logit bias", self._greatest, logits)
        logits[self._ids] += self._strengths

    def commit(self, token: int) -> None:
        """Nothing to learn: a bias is the same for every position."""

    def reset(self) -> None:
        """Nothing to forget."""


def _checked_strength(strength: object) -> float:
    number = real_of(strength)
    # NaN is not between anything
    if number is None or not -STRENGTH_LIMIT <= number <= STRENGTH_LIMIT:
        expected = f"a number from {-STRENGTH_LIMIT:g} to {STRENGTH_LIMIT:g}; to forbid a token use BannedTokens"
        raise ConfigError("logit bias", got=strength, expected=expected)
    return number
