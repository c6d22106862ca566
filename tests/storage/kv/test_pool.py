"""Blocks are handed out once, counted, and come back."""

from __future__ import annotations

import pytest

from fucina.errors import ConfigError, KvPoolFull
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool

GEOMETRY = KvGeometry((LayerGeometry(kv_heads=1, d_head=2),))


def test_every_block_is_handed_out_once_and_then_the_pool_is_full() -> None:
    pool = KvPool(GEOMETRY, 3)
    assert pool.n_free == 3
    assert {pool.take() for _ in range(3)} == {0, 1, 2}
    assert pool.n_free == 0
    with pytest.raises(KvPoolFull, match="3 KV blocks"):
        pool.take()


def test_a_block_comes_back_after_its_last_owner() -> None:
    pool = KvPool(GEOMETRY, 1)
    block = pool.take()
    pool.share(block)
    assert pool.is_shared(block)
    pool.release(block)
    assert not pool.is_shared(block)
    assert pool.n_free == 0
    pool.release(block)
    assert pool.n_free == 1
    assert pool.take() == block


def test_freed_blocks_are_taken_before_untouched_ones() -> None:
    pool = KvPool(GEOMETRY, 4)
    first = pool.take()
    pool.release(first)
    assert pool.take() == first


def test_copy_copies_one_block_and_touches_no_other() -> None:
    pool = KvPool(GEOMETRY, 3)
    size = GEOMETRY.block_bytes
    pool.memory[:] = bytes([1]) * size + bytes([2]) * size + bytes([3]) * size
    pool.copy(2, 0)
    assert pool.memory[:] == bytes([3]) * size + bytes([2]) * size + bytes([3]) * size


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_pool_without_blocks_is_refused(capacity: int) -> None:
    with pytest.raises(ConfigError, match="capacity"):
        KvPool(GEOMETRY, capacity)


def test_a_reserved_range_larger_than_memory_costs_nothing_until_written() -> None:
    deep = KvGeometry((LayerGeometry(kv_heads=8, d_head=128),) * 128)
    pool = KvPool(deep, 2**15)
    assert pool.capacity * deep.block_bytes == 2**40
    assert pool.memory[-1] == 0
