"""What the model thought likely after each token, kept instead of thrown away (Token Recycling, Luo et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import numpy as np

#: Candidates kept after a token.
N_CANDIDATES = 8
_ROW = Struct(f"={N_CANDIDATES}I")
_ROW_BYTES = 4 * N_CANDIDATES


class Recycling:
    """For every token of a vocabulary, the tokens last seen to follow it, best first. One for many sequences.

    The candidates are a (vocab, 8) u32 matrix holding id + 1, 0 where nothing is known: it starts as untouched zero
    pages, which cost neither time nor memory until a row of theirs is written. It is read through a `memoryview`,
    because one entry then takes a third of what NumPy's own scalar access takes. An impossible id is never stored.
    """

    def __init__(self, vocab: int) -> None:
        self.vocab = vocab
        self._slots = np.zeros(vocab * N_CANDIDATES, np.uint32).data

    def update(self, token: int, ids: Sequence[int]) -> None:
        """Replace what follows `token` by the first 8 of `ids`, best first. An id outside the vocabulary is skipped."""
        vocab = self.vocab
        if 0 <= token < vocab:
            row = [id_ + 1 for id_ in ids if 0 <= id_ < vocab][:N_CANDIDATES]
            _ROW.pack_into(self._slots, token * _ROW_BYTES, *row, *(0,) * (N_CANDIDATES - len(row)))

    def observe(self, previous: int | None, committed: Sequence[int]) -> tuple[int, int]:
        """Move each committed token to the front of the row of the one before it; the least likely one drops out.

        `previous` is the token before the first, or None. The matrix serves many sequences, so each tells its own.
        Returns how many of these tokens were in front already, and of how many one was: what drafting them would give.
        """
        slots, vocab = self._slots, self.vocab
        n_right = n_known = 0
        start = previous * N_CANDIDATES if previous is not None and 0 <= previous < vocab else -1
        for token in committed:
            if not 0 <= token < vocab:
                start = -1
                continue
            if start >= 0:
                front, slot = slots[start], token + 1
                if front:
                    n_known += 1
                if front == slot:
                    n_right += 1
                else:
                    if front:
                        self._make_room(start, slot)
                    slots[start] = slot
            start = token * N_CANDIDATES
        return n_right, n_known

    def candidates(self, token: int) -> list[int]:
        """Return what is known to follow `token`, best first; nothing for an impossible one."""
        if not 0 <= token < self.vocab:
            return []
        return [slot - 1 for slot in _ROW.unpack_from(self._slots, token * _ROW_BYTES) if slot]

    def chain(self, last: int, max_tokens: int) -> list[int]:
        """Follow the likeliest token from `last` on, until nothing is known or `max_tokens` are found."""
        slots = self._slots
        found: list[int] = []
        if 0 <= last < self.vocab:
            while len(found) < max_tokens:
                last = slots[last * N_CANDIDATES] - 1
                if last < 0:
                    break
                found.append(last)
        return found

    def _make_room(self, start: int, slot: int) -> None:
        """Shift the row at `start` right by one, over `slot` where it has it, else over its last."""
        slots = self._slots
        row = _ROW.unpack_from(slots, 4 * start)
        n_moved = row.index(slot) if slot in row else N_CANDIDATES - 1
        slots[start + 1 : start + 1 + n_moved] = slots[start : start + n_moved]
