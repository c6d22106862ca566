"""Log-probabilities for the caller: of the model's own distribution, before any processor, penalty or temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fucina.decoding.exact_math import log
from fucina.decoding.scans import RowScans

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: (token id, natural log of its probability) of the most probable tokens, most probable first, ties to the lower id.
TopLogprobs = tuple[tuple[int, float], ...]


def token_logprobs(scans: RowScans, logits: NDArray[np.float32], token: int, n_top: int) -> tuple[float, TopLogprobs]:
    """Give the natural log-probability of `token` and of the `n_top` most probable tokens.

    logits (vocab,) f32, sound and not all -inf, as the model gave them: log softmax, in double.
    """
    found = scans.top_k(logits, max(n_top, 1))
    assert found is not None, "a token was chosen from this row"
    ids, values = found
    best = float(values[0])
    log_total = log(scans.exp_sum(logits, best, 1.0))
    top = tuple((int(i), float(v) - best - log_total) for i, v in zip(ids[:n_top], values[:n_top], strict=True))
    return float(logits[token]) - best - log_total, top
