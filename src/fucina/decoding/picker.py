"""Choose the next token from a row of logits: the only code in the house that chooses.

Takes:  logits (vocab,) f32, borrowed and left as they are; every committed token so far.
Gives:  one token, and its log-probabilities where the request asks for them.
Knows nothing of: models, KV, text, requests.
Law:    the result depends only on (logits, history, params, seed): no clock, no stream, no thread, no instruction set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fucina.core.randomness import uniform
from fucina.decoding.logprobs import TopLogprobs, token_logprobs
from fucina.decoding.params import SamplingParams
from fucina.decoding.processors.contract import Forbidding, LogitProcessor
from fucina.decoding.processors.penalties import Penalties
from fucina.decoding.scans import RowScans, open_scans
from fucina.errors import AllTokensMasked, BadLogits

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Without top_k, tokens are sorted only as far as the draw needs: this many first, then four times as many, and so on.
_FIRST_WINDOW = 256
# So many of the greatest logits are tried one by one before a mask is asked for.
_MOST_TRIED = 16
# 1/temperature stays finite, so that 0 * inf cannot make a NaN of the greatest logit.
_GREATEST_INVERSE = 1e300
_MASKED = -np.inf


class Choice(NamedTuple):
    """A chosen token; natural log-probabilities of the model's own distribution where they were asked for."""

    token: int
    logprob: float | None = None
    top: TopLogprobs = ()


class Picker:
    """Chooses for one sequence: processor, penalties, greedy shortcut, top-k, temperature, top-p, min-p, draw."""

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        processor: LogitProcessor | None = None,
        scans: RowScans | None = None,
    ) -> None:
        self.params, self.seed, self.processor = params, seed, processor
        self.scans = scans if scans is not None else open_scans()
        self._penalties = Penalties(params, self.scans) if params.penalizes else None
        self._edits = processor is not None or params.penalizes
        self._copy: NDArray[np.float32] = np.empty(0, np.float32)
        self._inverse_temperature = 0.0 if params.is_greedy else min(1.0 / params.temperature, _GREATEST_INVERSE)
        self._is_greedy = params.is_greedy
        self._forbidding = processor if isinstance(processor, Forbidding) else None
        self._greatest_wins = params.is_greedy and not params.penalizes
        self._draws_allowed = self._forbidding is not None and not params.is_greedy and not params.penalizes
        self._n_top = params.logprobs

    def pick(self, logits: NDArray[np.float32], history: Sequence[int]) -> Choice:
        """Choose the token after `history` and commit it to the processor.

        logits (vocab,) f32, contiguous, borrowed. Raises AllTokensMasked, BadLogits, and whatever the processor raises;
        then nothing was committed.
        """
        token, committed = -1, False
        if self._forbidding is not None:
            token = _only(logits, self._forbidding)
            if token < 0 and self._greatest_wins:
                token = self._taken(logits, self._forbidding)
                committed = token >= 0
        if token < 0:
            # where nothing but the draw needs the mask, it is spared a copy of the row
            allowed = self._forbidding.allowed() if self._forbidding is not None and self._draws_allowed else None
            row = self._edited(logits, history) if self._edits and allowed is None else logits
            if self._is_greedy:
                token = self._greatest(row)
            else:
                token = self._drawn(row, uniform(self.seed, len(history)), allowed)
        if self._n_top is None:
            choice = Choice(token)
        else:
            choice = Choice(token, *token_logprobs(self.scans, logits, token, self._n_top))
        if self.processor is not None and not committed:
            self.processor.commit(token)
        return choice

    def _edited(self, logits: NDArray[np.float32], history: Sequence[int]) -> NDArray[np.float32]:
        """Copy the row, so that logprobs still see the model's, and let processor and penalties change the copy."""
        if self._copy.shape != logits.shape:
            self._copy = np.empty_like(logits)
        np.copyto(self._copy, logits)
        if self.processor is not None:
            self.processor.process(self._copy, history)
        if self._penalties is not None:
            self._penalties.apply(self._copy, history)
        return self._copy

    def _taken(self, logits: NDArray[np.float32], forbidding: Forbidding) -> int:
        """The greatest that may be chosen, committed, if it is among the first of the row; -1 elsewhere.

        Trying some tokens takes less than a mask of all, and gives the same.
        """
        token = self.scans.argmax(logits)
        if token < 0 or logits.item(token) == _MASKED:
            return -1
        if forbidding.take(token):
            return token
        found = self.scans.top_k(logits, _MOST_TRIED)
        ids = found[0][1:].tolist() if found is not None else ()  # the first is refused already
        return next((token for token in ids if forbidding.take(token)), -1)

    def _greatest(self, row: NDArray[np.float32]) -> int:
        token = self.scans.argmax(row)
        if token < 0:
            raise _bad_logits(row)
        if row.item(token) == _MASKED:
            raise _all_masked(row)
        return token

    def _drawn(self, row: NDArray[np.float32], point: float, allowed: NDArray[np.uint32] | None) -> int:
        """Draw over the whole row exactly, sorting no more of it than needed. `point` is uniform in [0, 1).

        With a mask `allowed` only its tokens are looked at: the same as with -inf for all others.
        """
        params, inverse = self.params, self._inverse_temperature
        window, total = params.top_k or _FIRST_WINDOW, -1.0
        while True:
            found = self.scans.top_k(row, window, allowed)
            if found is None:
                if allowed is not None:
                    row = row.copy()
                    self.scans.apply_bitmask(row, allowed)
                raise _bad_logits(row)
            ids, values = found
            if not len(ids):
                raise _all_masked(row)
            complete = params.top_k is not None or len(ids) < window or window >= len(row)
            if not complete and total < 0.0:
                total = self.scans.exp_sum(row, float(values[0]), inverse, allowed)
            index = self.scans.draw(values, inverse, total, params.top_p, params.min_p, point, complete)
            if index >= 0:
                return int(ids[index])
            window *= 4


def _only(logits: NDArray[np.float32], forbidding: Forbidding) -> int:
    """The only token that may be chosen, as far as that is known and it has a logit; -1 elsewhere."""
    token = forbidding.only_token()
    return -1 if token is None or not _MASKED < logits.item(token) < np.inf else token


def _bad_logits(row: NDArray[np.float32]) -> BadLogits:
    bad = np.flatnonzero(~(row < np.inf))
    first = int(bad[0])
    return BadLogits(
        f"{len(bad)} of {len(row)} logits are NaN or +inf, the first is {row[first]} for token {first}: "
        "the model file is damaged or a processor wrote it"
    )


def _all_masked(row: NDArray[np.float32]) -> AllTokensMasked:
    return AllTokensMasked(f"all {len(row)} tokens are masked (-inf): the processors left none to choose; loosen them")
