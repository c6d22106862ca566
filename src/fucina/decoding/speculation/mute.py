"""Silence for a source of drafts that is mostly wrong, and another chance later."""

from __future__ import annotations

#: Drafted tokens that a verdict rests on.
_WINDOW = 64
_WINDOW_BITS = (1 << _WINDOW) - 1
_LEAST_RIGHT = 0.20
#: Committed tokens that a mute lasts.
_MUTED_FOR = 128


class Mute:
    """Watches the last 64 drafted tokens of one source: fewer than 20 % accepted mute it for 128 committed tokens."""

    __slots__ = ("_left", "_n_seen", "_ring", "accepted", "drafted")

    def __init__(self) -> None:
        self.drafted = self.accepted = 0
        self._left = self._n_seen = 0
        self._ring = 0  # its bits: the newest token lowest, set where it was accepted

    @property
    def is_muted(self) -> bool:
        """Whether the source is to draft nothing at present."""
        return self._left > 0

    def record(self, n_accepted: int, n_drafted: int) -> None:
        """Learn that of `n_drafted` tokens the first `n_accepted` were accepted and the rest was not."""
        self.drafted += n_drafted
        self.accepted += n_accepted
        accepted_bits = ((1 << n_accepted) - 1) << (n_drafted - n_accepted)
        self._ring = (self._ring << n_drafted | accepted_bits) & _WINDOW_BITS
        self._n_seen += n_drafted
        if self._n_seen >= _WINDOW and self._ring.bit_count() < _LEAST_RIGHT * _WINDOW:
            self._left = _MUTED_FOR
            self._ring = self._n_seen = 0

    def count_down(self, n_committed: int) -> None:
        """Let `n_committed` tokens of a mute pass."""
        if self._left:
            self._left = max(self._left - n_committed, 0)
