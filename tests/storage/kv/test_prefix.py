"""The prefix cache gives what a list of everything ever said would give, and never a wrong position.

Every position of a block is written with a number that stands for all tokens up to it, so that a block found for other
tokens, written while shared, or given away while in use shows up as a wrong number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fucina.core.shapes import KV_BLOCK
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.prefix import PrefixCache
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.memory_store import MemoryStore

GEOMETRY = KvGeometry((LayerGeometry(kv_heads=1, d_head=2),))
SLOT_BYTES = 4


def expected_number(ids: Sequence[int], position: int, salt: str) -> int:
    return crc32(repr((salt, list(ids[: position + 1]))).encode()) & 0x7FFFFFFF


def numbers(kv: KvSequence) -> list[int]:
    places = [kv.blocks[p // KV_BLOCK] * GEOMETRY.block_bytes + p % KV_BLOCK * SLOT_BYTES for p in range(kv.length)]
    return [struct.unpack_from("<i", kv.pool.memory, place)[0] for place in places]


def say(cache: PrefixCache, pool: KvPool, ids: Sequence[int], salt: str = "") -> int:
    """What the engine does with a prompt: find, adopt, compute the rest, insert, close. Gives what was found."""
    kv = cache.begin(ids, len(ids) - 1, salt)
    n_found = kv.length
    kv.reserve(len(ids) - n_found)
    for position in range(n_found, len(ids)):
        place = kv.blocks[position // KV_BLOCK] * GEOMETRY.block_bytes + position % KV_BLOCK * SLOT_BYTES
        pool.memory[place : place + SLOT_BYTES] = struct.pack("<i", expected_number(ids, position, salt))
    kv.advance(len(ids) - n_found)
    assert numbers(kv) == [expected_number(ids, position, salt) for position in range(len(ids))]
    cache.insert(ids, kv.blocks, kv.length, salt)
    kv.close()
    return n_found


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


PIECES = [[1] * 40, [1] * 24 + [2] * 40, [3] * 64, [1] * 100, [2, 3] * 50, [4]]


class Prompts(RuleBasedStateMachine):
    """Prompts of a few pieces, over a pool that is large enough or is not."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = KvPool(GEOMETRY, 40)
        self.store = MemoryStore(self.pool)
        self.cache = PrefixCache(self.pool, b"model", self.store)
        self.said: dict[str, list[list[int]]] = {"": [], "other": []}
        self.held: list[KvSequence] = []

    @rule(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), salt=st.sampled_from(["", "other"]))
    def prompt(self, pieces: list[list[int]], salt: str) -> None:
        ids = [token for piece in pieces for token in piece]
        if self.pool.n_free < len(ids) // KV_BLOCK + 2:
            return
        longest = max((min(common(ids, other), len(ids) - 1) for other in self.said[salt]), default=0)
        n_found = say(self.cache, self.pool, ids, salt)
        assert n_found == longest if self.store.gives else n_found <= longest
        self.said[salt].append(ids)

    @precondition(lambda self: self.said[""])
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        """A sequence that runs on over cached blocks; they must not be given away."""
        ids = data.draw(st.sampled_from(self.said[""]))
        kv = self.cache.begin(ids, len(ids) - 1)
        assert numbers(kv) == [expected_number(ids, p, "") for p in range(kv.length)]
        if len(self.held) < 3:
            self.held.append(kv)
        else:
            kv.close()

    @precondition(lambda self: self.held)
    @rule()
    def let_go(self) -> None:
        self.held.pop().close()

    @rule()
    def the_store_changes_its_mind(self) -> None:
        self.store.gives = not self.store.gives

    @rule(n=st.integers(1, 5))
    def reclaim(self, n: int) -> None:
        n_free, n_kept = self.pool.n_free, self.cache.n_blocks
        assert self.cache.reclaim(n) == n_kept - self.cache.n_blocks
        assert self.pool.n_free == n_free, "what can be given back counts as free"

    @invariant()
    def blocks_add_up(self) -> None:
        in_use = {block for kv in self.held for block in kv.blocks}
        assert self.pool.n_free == self.pool.capacity - len(in_use)


TestPrompts = Prompts.TestCase
TestPrompts.settings = settings(max_examples=60, stateful_step_count=30)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=300), st.lists(st.integers(0, 3), min_size=2, max_size=300))
@settings(max_examples=60)
def test_reuse_is_exact_to_the_token(first: list[int], second: list[int]) -> None:
    pool = KvPool(GEOMETRY, 32)
    cache = PrefixCache(pool)
    say(cache, pool, first)
    assert say(cache, pool, second) == min(common(first, second), len(second) - 1)


def test_sequences_that_begin_alike_share_memory() -> None:
    pool = KvPool(GEOMETRY, 64)
    cache = PrefixCache(pool)
    system = [7] * (10 * KV_BLOCK)
    for user in range(5):
        say(cache, pool, [*system, user])
    assert cache.n_blocks == 10 + 5


def test_what_was_used_last_stays() -> None:
    pool = KvPool(GEOMETRY, 4)
    cache = PrefixCache(pool)
    old, used = [1] * KV_BLOCK, [2] * KV_BLOCK
    for ids in (used, old, used):
        say(cache, pool, [*ids, 9])
    say(cache, pool, [3] * KV_BLOCK * 3)
    assert cache.n_known(used) == KV_BLOCK
    assert cache.n_known(old) == 0


def test_blocks_leave_from_the_end_of_a_branch() -> None:
    pool = KvPool(GEOMETRY, 8)
    store = MemoryStore(pool)
    cache = PrefixCache(pool, store=store)
    ids = list(range(4 * KV_BLOCK))
    say(cache, pool, ids)
    assert cache.reclaim(2) == 2
    assert list(store.blocks) == [cache.name_of(ids, 4 * KV_BLOCK), cache.name_of(ids, 3 * KV_BLOCK)]
    assert cache.n_known(ids) == 2 * KV_BLOCK


def test_names_differ_by_model_salt_and_every_token_before() -> None:
    pool = KvPool(GEOMETRY, 4)
    ids = list(range(2 * KV_BLOCK))
    cache, other = PrefixCache(pool, b"one"), PrefixCache(pool, b"two")
    changed = [99, *ids[1:]]
    names = {cache.name_of(ids, 128), cache.name_of(ids, 128, "salt"), other.name_of(ids, 128)}
    assert len(names | {cache.name_of(changed, 128)}) == 4


def test_clearing_gives_every_block_back() -> None:
    pool = KvPool(GEOMETRY, 8)
    cache = PrefixCache(pool)
    say(cache, pool, [5] * 200)
    cache.clear()
    assert cache.n_blocks == 0
    pool.reclaimer = None
    assert pool.n_free == 8


def test_closing_stores_everything_parents_first() -> None:
    pool = KvPool(GEOMETRY, 16)
    store = MemoryStore(pool)
    cache = PrefixCache(pool, store=store)
    say(cache, pool, list(range(300)))
    say(cache, pool, [*range(100), *range(100)])
    n_blocks = cache.n_blocks
    known = {cache.name_of([], 0)}
    cache.close()
    cache.close()
    for stored, _ in store.blocks.values():
        assert stored.parent in known
        known.add(stored.name)
    assert len(store.blocks) == n_blocks
    assert pool.n_free == 16


def test_what_was_stored_is_found_by_another_cache() -> None:
    pool = KvPool(GEOMETRY, 16)
    store = MemoryStore(pool)
    cache = PrefixCache(pool, store=store)
    ids = list(range(300))
    say(cache, pool, ids)
    cache.close()
    again = PrefixCache(pool, store=store)
    assert again.n_known(ids) == 0
    assert say(again, pool, [*ids[:250], 7, 7]) == 250
    assert store.n_fetched == 4


def test_a_block_is_fetched_only_where_that_is_faster() -> None:
    pool = KvPool(GEOMETRY, 16)
    store = MemoryStore(pool)
    cache = PrefixCache(pool, store=store)
    ids = list(range(150))
    say(cache, pool, ids)
    cache.close()
    again = PrefixCache(pool, store=store)
    again.token_s, store.seconds_to_fetch = 0.001, 0.05  # worth it from 50 tokens on, and the last block has 22
    assert say(again, pool, [*ids, 1]) == 128


def test_a_prefix_is_fetched_in_portions() -> None:
    pool = KvPool(GEOMETRY, 16)
    store = MemoryStore(pool)
    ids = list(range(300))
    cache = PrefixCache(pool, store=store)
    say(cache, pool, ids)
    cache.close()
    cache = PrefixCache(pool, store=store)
    kv = KvSequence(pool)
    lengths = []
    while not cache.extend(kv, ids, 299, until=0.0):
        lengths.append(kv.length)
    assert lengths == [64, 128, 192, 256]  # one at a time, for the time is always up
    assert numbers(kv) == [expected_number(ids, position, "") for position in range(299)]
    assert store.n_fetched == 5
    kv.close()
    assert pool.n_free == 16


def test_a_prefix_that_is_forgotten_between_portions_ends_where_it_is() -> None:
    pool = KvPool(GEOMETRY, 16)
    store = MemoryStore(pool)
    ids = list(range(300))
    cache = PrefixCache(pool, store=store)
    say(cache, pool, ids)
    cache.close()
    cache = PrefixCache(pool, store=store)
    kv = KvSequence(pool)
    assert not cache.extend(kv, ids, 299, until=0.0)
    cache.clear()
    assert cache.extend(kv, ids, 299, until=0.0)
    assert numbers(kv) == [expected_number(ids, position, "") for position in range(64)]
    kv.close()
