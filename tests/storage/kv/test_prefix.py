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
from fucina.storage.kv.prefix import PrefixCache, StoredBlock
from fucina.storage.kv.sequence import KvSequence

GEOMETRY = KvGeometry((LayerGeometry(kv_heads=1, d_head=2),))
SLOT_BYTES = 4


class Kept:
    """A spill that only remembers what it was given, with the bytes."""

    def __init__(self, pool: KvPool) -> None:
        self.pool = pool
        self.blocks: list[tuple[StoredBlock, bytes]] = []

    def keep(self, stored: StoredBlock) -> None:
        size = GEOMETRY.block_bytes
        self.blocks.append((stored, self.pool.memory[stored.block * size : (stored.block + 1) * size]))


def expected_number(ids: Sequence[int], position: int, salt: str) -> int:
    return crc32(repr((salt, list(ids[: position + 1]))).encode()) & 0x7FFFFFFF


def numbers(kv: KvSequence) -> list[int]:
    places = [kv.blocks[p // KV_BLOCK] * GEOMETRY.block_bytes + p % KV_BLOCK * SLOT_BYTES for p in range(kv.length)]
    return [struct.unpack_from("<i", kv.pool.memory, place)[0] for place in places]


def say(cache: PrefixCache, pool: KvPool, ids: Sequence[int], salt: str = "") -> int:
    """What the engine does with a prompt: find, adopt, compute the rest, insert, close. Gives what was found."""
    found = cache.find(ids, len(ids) - 1, salt)
    kv = KvSequence(pool)
    kv.adopt(found.blocks, found.length)
    kv.reserve(len(ids) - found.length)
    for position in range(found.length, len(ids)):
        place = kv.blocks[position // KV_BLOCK] * GEOMETRY.block_bytes + position % KV_BLOCK * SLOT_BYTES
        pool.memory[place : place + SLOT_BYTES] = struct.pack("<i", expected_number(ids, position, salt))
    kv.advance(len(ids) - found.length)
    assert numbers(kv) == [expected_number(ids, position, salt) for position in range(len(ids))]
    cache.insert(ids, kv.blocks, kv.length, salt)
    kv.close()
    return found.length


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


PIECES = [[1] * 40, [1] * 24 + [2] * 40, [3] * 64, [1] * 100, [2, 3] * 50, [4]]


class Prompts(RuleBasedStateMachine):
    """Prompts of a few pieces, over a pool that is large enough or is not."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = KvPool(GEOMETRY, 40)
        self.spill = Kept(self.pool)
        self.cache = PrefixCache(self.pool, b"model", self.spill)
        self.said: dict[str, list[list[int]]] = {"": [], "other": []}
        self.held: list[KvSequence] = []

    @rule(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), salt=st.sampled_from(["", "other"]))
    def prompt(self, pieces: list[list[int]], salt: str) -> None:
        ids = [token for piece in pieces for token in piece]
        n_evicted = len(self.spill.blocks)
        if self.pool.n_free < len(ids) // KV_BLOCK + 2:
            return
        longest = max((min(common(ids, other), len(ids) - 1) for other in self.said[salt]), default=0)
        n_found = say(self.cache, self.pool, ids, salt)
        assert n_found <= longest
        if not n_evicted:
            assert n_found == longest
        self.said[salt].append(ids)

    @precondition(lambda self: self.said[""])
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        """A sequence that runs on over cached blocks; they must not be given away."""
        ids = data.draw(st.sampled_from(self.said[""]))
        found = self.cache.find(ids, len(ids) - 1)
        if len(self.held) < 3 and found.length:
            kv = KvSequence(self.pool)
            kv.adopt(found.blocks, found.length)
            self.held.append(kv)
            assert numbers(kv) == [expected_number(ids, p, "") for p in range(found.length)]

    @precondition(lambda self: self.held)
    @rule()
    def let_go(self) -> None:
        self.held.pop().close()

    @rule(n=st.integers(1, 5))
    def reclaim(self, n: int) -> None:
        before = self.cache.n_reclaimable
        assert self.cache.reclaim(n) <= before

    @invariant()
    def blocks_add_up(self) -> None:
        in_use = {block for kv in self.held for block in kv.blocks}
        assert self.cache.n_reclaimable == self.cache.n_blocks - len(in_use)
        assert self.pool.n_free == self.pool.capacity - len(in_use)

    @invariant()
    def what_was_spilled_is_whole(self) -> None:
        for stored, content in self.spill.blocks:
            assert len(stored.tokens) * SLOT_BYTES <= len(content)


TestPrompts = Prompts.TestCase
TestPrompts.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=300), st.lists(st.integers(0, 3), min_size=2, max_size=300))
@settings(max_examples=60, deadline=None)
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
    assert cache.find([*used, 9], KV_BLOCK).length == KV_BLOCK
    assert cache.find([*old, 9], KV_BLOCK).length == 0


def test_blocks_leave_from_the_end_of_a_branch() -> None:
    pool = KvPool(GEOMETRY, 8)
    spill = Kept(pool)
    cache = PrefixCache(pool, spill=spill)
    ids = list(range(4 * KV_BLOCK))
    say(cache, pool, ids)
    assert cache.reclaim(2) == 2
    names = [stored.name for stored, _ in spill.blocks]
    assert names == [cache.name_of(ids, 4 * KV_BLOCK), cache.name_of(ids, 3 * KV_BLOCK)]
    assert cache.find(ids, len(ids)).length == 2 * KV_BLOCK


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


def test_flushing_hands_over_parents_first() -> None:
    pool = KvPool(GEOMETRY, 16)
    spill = Kept(pool)
    cache = PrefixCache(pool, spill=spill)
    say(cache, pool, list(range(300)))
    say(cache, pool, [*range(100), *range(100)])
    cache.flush()
    known = {cache.name_of([], 0)}
    for stored, _ in spill.blocks:
        assert stored.parent in known
        known.add(stored.name)
    assert len(spill.blocks) == cache.n_blocks
