"""How often the drafts of a source turned out right, by how long its match was."""

from __future__ import annotations

from typing import Literal

#: Where a draft came from: a stream that is searched for the longest match, or the recycled candidates.
Kind = Literal["conversation", "reference", "history", "recycling"]

_OF_A_MATCH = (0.35, 0.55, 0.75, 0.9, 0.9)
_PRIORS: dict[Kind, tuple[float, ...]] = {
    "conversation": _OF_A_MATCH,
    "reference": _OF_A_MATCH,
    "history": (0.25, 0.55, 0.7, 0.75, 0.75),
    "recycling": (0.25,) * len(_OF_A_MATCH),
}
#: How many tokens the prior counts for. It does not fade, so no source is ever written off for good.
_PRIOR_WEIGHT = 4.0
#: What a token leaves of the memory of those before it: about the last 33 count.
_FADE = 0.97
#: What a refusal leaves: a source thought too poor to be asked is given another chance after some hundred steps.
_REFUSED_FADE = 0.99
_LOWEST, _HIGHEST = 0.02, 0.98
_N_BUCKETS = len(_OF_A_MATCH)


class Acceptance:
    """Estimates the probability that one more token of a draft is right. It outlives a conversation.

    Drafts are told apart by kind and by match length: 2, 3-4, 5-8, 9-16, 17 and more.
    """

    def __init__(self) -> None:
        self._counts = {kind: [_Counts(prior) for prior in priors] for kind, priors in _PRIORS.items()}

    def probability(self, kind: Kind, match_length: int) -> float:
        """Estimate the probability that a token is right when those before it were; within [0.02, 0.98]."""
        counts = self._counts[kind][_bucket(match_length)]
        return min(max((counts.hits + counts.prior_hits) / (counts.tried + _PRIOR_WEIGHT), _LOWEST), _HIGHEST)

    def record(self, kind: Kind, match_length: int, n_right: int, n_tried: int) -> None:
        """Learn that of `n_tried` drafted tokens the first `n_right` were right and the next, if any, was not.

        The tokens behind the first wrong one say nothing.
        """
        assert 0 <= n_right <= n_tried, (n_right, n_tried)
        self.count(kind, match_length, n_right, n_right + (n_right < n_tried))

    def count(self, kind: Kind, match_length: int, n_right: int, n_telling: int) -> None:
        """Learn that of `n_telling` guesses `n_right` were right, whether they were tried or not."""
        fade = _FADE**n_telling
        counts = self._counts[kind][_bucket(match_length)]
        counts.hits = counts.hits * fade + n_right
        counts.tried = counts.tried * fade + n_telling

    def refuse(self, kind: Kind, match_length: int) -> None:
        """Note that nothing was drafted because it seemed not worth its price: what is remembered fades a little."""
        counts = self._counts[kind][_bucket(match_length)]
        counts.hits *= _REFUSED_FADE
        counts.tried *= _REFUSED_FADE


class _Counts:
    """Faded counts of tokens: those that were right, and those that were right or the first wrong one."""

    __slots__ = ("hits", "prior_hits", "tried")

    def __init__(self, prior: float) -> None:
        self.hits = self.tried = 0.0
        self.prior_hits = prior * _PRIOR_WEIGHT


def _bucket(match_length: int) -> int:
    """Return 0 for a match of up to 2, 1 for 3-4, 2 for 5-8, 3 for 9-16, 4 from 17 on."""
    return min(max((match_length - 1).bit_length() - 1, 0), _N_BUCKETS - 1)
