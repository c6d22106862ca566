"""Sequences over a pool behave like lists of positions, however they are forked, truncated and closed.

The model is a plain list a sequence. Every position is written as one number into the first bytes of its place, so
that a block shared too long, copied too late or given away too early shows up as a wrong number.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from fucina.core.shapes import KV_BLOCK
from fucina.errors import Closed, ConfigError, KvPoolFull
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.sequence import KvSequence

GEOMETRY = KvGeometry((LayerGeometry(kv_heads=1, d_head=2),))
SLOT_BYTES = 4


def _place(sequence: KvSequence, position: int) -> int:
    return sequence.blocks[position // KV_BLOCK] * GEOMETRY.block_bytes + position % KV_BLOCK * SLOT_BYTES


def _append(sequence: KvSequence, values: list[int]) -> None:
    """What a forward pass does: reserve, write, advance."""
    sequence.reserve(len(values))
    for offset, value in enumerate(values):
        place = _place(sequence, sequence.length + offset)
        sequence.pool.memory[place : place + SLOT_BYTES] = struct.pack("<i", value)
    sequence.advance(len(values))


def _read(sequence: KvSequence) -> list[int]:
    memory = sequence.pool.memory
    return [struct.unpack_from("<i", memory, _place(sequence, p))[0] for p in range(sequence.length)]


class Sequences(RuleBasedStateMachine):
    """A pool of 12 blocks and any number of sequences and forks over it."""

    live = Bundle("live")

    def __init__(self) -> None:
        super().__init__()
        self.pool = KvPool(GEOMETRY, 12)
        self.model: dict[KvSequence, list[int]] = {}
        self.written = 0

    @rule(target=live)
    def new(self) -> KvSequence:
        sequence = KvSequence(self.pool)
        self.model[sequence] = []
        return sequence

    @rule(sequence=live, count=st.integers(1, 150))
    def append(self, sequence: KvSequence, count: int) -> None:
        values = list(range(self.written, self.written + count))
        self.written += count
        try:
            _append(sequence, values)
        except KvPoolFull:
            return
        self.model[sequence] += values

    @rule(sequence=live, data=st.data())
    def truncate(self, sequence: KvSequence, data: st.DataObject) -> None:
        length = data.draw(st.integers(0, sequence.length))
        sequence.truncate(length)
        del self.model[sequence][length:]

    @rule(sequence=live)
    def trim(self, sequence: KvSequence) -> None:
        sequence.trim()
        assert len(sequence.blocks) == -(-sequence.length // KV_BLOCK)

    @rule(target=live, sequence=live)
    def fork(self, sequence: KvSequence) -> KvSequence:
        free = self.pool.n_free
        other = sequence.fork()
        assert self.pool.n_free == free, "a fork alone takes no memory"
        self.model[other] = list(self.model[sequence])
        return other

    @rule(sequence=consumes(live))
    def close(self, sequence: KvSequence) -> None:
        sequence.close()
        sequence.close()
        del self.model[sequence]

    @invariant()
    def every_sequence_reads_what_it_wrote(self) -> None:
        for sequence, values in self.model.items():
            assert sequence.length == len(values)
            assert _read(sequence) == values

    @invariant()
    def blocks_are_free_or_owned(self) -> None:
        owned = {block for sequence in self.model for block in sequence.blocks}
        assert self.pool.n_free == self.pool.capacity - len(owned)

    def teardown(self) -> None:
        for sequence in self.model:
            sequence.close()
        assert self.pool.n_free == self.pool.capacity


Sequences.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestSequences = Sequences.TestCase


def test_a_writer_copies_only_the_shared_block_it_writes_into() -> None:
    pool = KvPool(GEOMETRY, 8)
    first = KvSequence(pool)
    _append(first, list(range(2 * KV_BLOCK + 10)))
    second = first.fork()
    before = list(second.blocks)
    _append(second, [1000])
    assert second.blocks[:2] == before[:2] == first.blocks[:2]
    assert second.blocks[2] != first.blocks[2]
    assert pool.n_free == 8 - 4


def test_a_full_pool_leaves_a_sequence_as_it_was() -> None:
    pool = KvPool(GEOMETRY, 2)
    sequence = KvSequence(pool)
    _append(sequence, [1, 2, 3])
    with pytest.raises(KvPoolFull):
        sequence.reserve(3 * KV_BLOCK)
    assert _read(sequence) == [1, 2, 3]
    sequence.trim()
    assert pool.n_free == 1


@pytest.mark.parametrize("length", [-1, 4])
def test_truncating_to_what_was_never_there_is_refused(length: int) -> None:
    sequence = KvSequence(KvPool(GEOMETRY, 1))
    _append(sequence, [1, 2, 3])
    with pytest.raises(ConfigError, match="truncate"):
        sequence.truncate(length)
    assert sequence.length == 3


def test_a_closed_sequence_refuses_to_grow() -> None:
    sequence = KvSequence(KvPool(GEOMETRY, 1))
    sequence.close()
    with pytest.raises(Closed):
        sequence.reserve(1)
