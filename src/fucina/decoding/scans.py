"""The scans over a row of logits that choosing needs, behind one protocol: native, or NumPy to the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from fucina.core.nativelib import Native, open_native
from fucina.decoding.reference_scans import ReferenceScans

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class RowScans(Protocol):
    """Pure functions of a row (vocab,) f32, contiguous. The same bits from every implementation.

    Weights are e^((logit - greatest) * inverse_temperature) in double; a logit of -inf weighs nothing.
    """

    def argmax(self, row: NDArray[np.float32]) -> int:
        """Find the lowest id of the greatest logit; -1 if the row holds NaN or +inf."""

    def top_k(
        self, row: NDArray[np.float32], k: int, allowed: NDArray[np.uint32] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        """Find ids (k,) and logits (k,) of the k greatest above -inf, greatest first, ties to the lower id.

        There are fewer than k if the row has fewer above -inf; None if it holds NaN or +inf. `allowed`: the same of
        the row behind `apply_bitmask`, without a copy of it.
        """

    def exp_sum(
        self,
        row: NDArray[np.float32],
        best: float,
        inverse_temperature: float,
        allowed: NDArray[np.uint32] | None = None,
    ) -> float:
        """Sum the weights of the row, whose greatest logit is `best`, in double over 16 strided lanes.

        `allowed`: the same of the row behind `apply_bitmask`, without a copy of it.
        """

    def draw(
        self,
        values: NDArray[np.float32],
        inverse_temperature: float,
        total: float,
        top_p: float,
        min_p: float,
        uniform: float,
        complete: bool,
    ) -> int:
        """Draw an index from a window of descending logits (k,), or -1 if the window is too short to tell.

        `total` is the weight of everything that may be chosen (negative: of the window itself); `complete` says that
        nothing of it lies outside the window. Kept is the shortest prefix whose weight reaches top_p * total, cut
        before the first weight below min_p, never empty. Drawn is the first index whose cumulative weight exceeds
        uniform * (weight of what is kept).
        """

    def penalize(
        self, row: NDArray[np.float32], window: Sequence[int], repeat: float, frequency: float, presence: float
    ) -> None:
        """Lower in place the logit l of each token of the window, once.

        l = l / repeat if l > 0 else l * repeat; then l -= occurrences * frequency + presence. Ids outside are skipped.
        """

    def apply_bitmask(self, row: NDArray[np.float32], words: NDArray[np.uint32]) -> None:
        """Put -inf in place where bit id % 32 of words[id // 32] is 0, and past the last word."""


def open_scans() -> RowScans:
    """The native scans if the extension is there, else the NumPy ones."""
    native = open_native()
    return cast(RowScans, native.module) if isinstance(native, Native) else ReferenceScans()
