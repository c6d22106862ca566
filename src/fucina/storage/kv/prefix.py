"""Keys and values of what was said before, found again by their tokens: sequences that begin alike share blocks.

A tree of blocks: a node is one block of tokens behind those of its parent, compared token by token before it is used.
The tree owns a reference to each of its blocks. Blocks that nobody else owns are given back when the pool runs out,
the least worth first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np

from fucina.core.shapes import KV_BLOCK
from fucina.errors import KvPoolFull
from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.sequence import KvSequence

#: Attention makes a token this many positions deep twice as dear to compute as the first.
_TWICE_AS_DEAR = 4096
#: What is dear to compute outlives what is not by so many tokens of traffic for each token's worth of work.
_PATIENCE = 4


class StoredBlock(NamedTuple):
    """A block that leaves memory: its name, that of the block before it, and its tokens.

    A name is a digest of all tokens up to the block's last, and of what else the keys and values depend on.
    """

    name: bytes
    parent: bytes
    tokens: tuple[int, ...]
    block: int


class FoundBlock(NamedTuple):
    """A stored block: its name, its tokens, and how many of those that were asked for it begins with."""

    name: bytes
    tokens: tuple[int, ...]
    n_common: int


class BlockStore(Protocol):
    """Where blocks go that memory has no room for, and come from again. Nothing here raises."""

    @property
    def seconds_to_fetch(self) -> float | None:
        """What fetching one block has taken so far, on average; None before the first."""

    def keep(self, stored: StoredBlock) -> None:
        """Copy the block's bytes, now, and store them when there is time."""

    def find(self, parent: bytes, ids: Sequence[int]) -> FoundBlock | None:
        """Find the block behind `parent` that begins with most of `ids`, of which the first 64 count."""

    def fetch(self, name: bytes, tokens: Sequence[int], block: int) -> bool:
        """Read a block into one of the pool's; False if its tokens do not begin with `tokens`, or a bit is wrong."""

    def be_patient(self, seconds: float) -> None:
        """For so long, rather wait for room in the queue than lose a block."""

    def close(self) -> bool:
        """Store what is queued and let go; whether all of it was stored."""


@dataclass(slots=True, eq=False)
class _Node:
    """`n_before` tokens precede the block's own. It is worth `worth`: when it was used last, and what it costs."""

    name: bytes
    parent: _Node | None
    tokens: tuple[int, ...]
    block: int
    n_before: int
    worth: float = 0.0
    children: dict[int, list[_Node]] = field(default_factory=dict)  # by their first token


class PrefixCache:
    """The blocks of one pool that are kept for prompts to come. Not thread-safe: the engine's thread owns it.

    `identity` names everything that keys and values depend on besides tokens: the model's file, the KV format. Prompts
    with different salts never share, so that nobody can tell from the time it takes what others have asked.
    """

    def __init__(self, pool: KvPool, identity: bytes = b"", store: BlockStore | None = None) -> None:
        self._pool, self.identity, self._store = pool, identity, store
        #: What computing a token takes; a block is fetched only where that is faster. None: nobody knows yet.
        self.token_s: float | None = None
        self._roots: dict[str, _Node] = {}
        self._nodes: dict[bytes, _Node] = {}
        self._queue: list[tuple[float, int, _Node]] = []  # by worth; entries that are no longer true are skipped
        self._n_queued = 0
        self._n_used = 0  # tokens found or kept so far: the time by which recency counts
        pool.reclaimer = self

    @property
    def n_blocks(self) -> int:
        """Blocks that are kept."""
        return len(self._nodes)

    def begin(self, ids: Sequence[int], n_most: int, salt: str = "") -> KvSequence:
        """Begin a sequence with the longest known prefix of `ids`, of at most `n_most` tokens.

        Blocks that are only stored are fetched, as long as there is room and it pays.
        """
        kv = KvSequence(self._pool)
        self.extend(kv, ids, n_most, salt)
        return kv

    def extend(self, kv: KvSequence, ids: Sequence[int], n_most: int, salt: str = "", until: float = inf) -> bool:
        """Go on with a sequence that begins with known whole blocks of `ids`, as `begin` does.

        False if it was later than `until`, a time of perf_counter, and not all had been looked for: call it again.
        At least one block is fetched each time, if there is one.
        """
        node, n_common, n_fetched = self._root(salt), KV_BLOCK, 0
        for start in range(0, kv.length, KV_BLOCK):
            child, n_common = _most_alike(node, ids, start, kv.length)
            if child is None or n_common < KV_BLOCK:
                return True  # it was forgotten meanwhile, and what comes behind it too
            node = child
        while n_common == KV_BLOCK and kv.length < n_most:
            child, n_common = _most_alike(node, ids, kv.length, n_most)
            if n_common < KV_BLOCK and self._store is not None:
                if n_fetched and perf_counter() > until:
                    return False
                n_fetched += 1
            if n_common < KV_BLOCK and self._fetch(node, ids[kv.length : n_most], n_common):
                child, n_common = _most_alike(node, ids, kv.length, n_most)
            if child is None:
                break
            self._touch(child)
            kv.adopt(child.block, n_common)
            node = child
        return True

    def n_known(self, ids: Sequence[int], salt: str = "") -> int:
        """Count the first tokens of `ids` that are in memory."""
        node, n_common, length = self._root(salt), KV_BLOCK, 0
        while n_common == KV_BLOCK and length < len(ids):
            child, n_common = _most_alike(node, ids, length, len(ids))
            length += n_common
            node = child or node
        return length

    def insert(self, ids: Sequence[int], blocks: Sequence[int], length: int, salt: str = "") -> None:
        """Keep the blocks of a sequence whose first `length` positions hold `ids`; what is known already is not kept.

        The caller still owns its references. It must never write again to what it gave, but past `length`.
        """
        node = self._root(salt)
        for index, block in enumerate(blocks[: -(-length // KV_BLOCK)]):
            tokens = tuple(ids[index * KV_BLOCK : min((index + 1) * KV_BLOCK, length)])
            node = self._add(node, tokens, block)

    def name_of(self, ids: Sequence[int], length: int, salt: str = "") -> bytes:
        """The name of the block that ends with token `length` of `ids`, `length` being a multiple of the block size."""
        name = self._root(salt).name
        for start in range(0, length, KV_BLOCK):
            name = _name(name, tuple(ids[start : start + KV_BLOCK]))
        return name

    def reclaim(self, n_blocks: int) -> int:
        """Give up to so many blocks back to the pool, those least worth that nobody else owns; give how many."""
        in_use: list[_Node] = []
        n_given = 0
        while self._queue and n_given < n_blocks:
            worth, _, node = heapq.heappop(self._queue)
            if self._nodes.get(node.name) is not node or node.worth != worth or node.children:
                continue  # gone, used since, or not the end of a branch; it is queued again when it becomes one
            if self._pool.is_shared(node.block):
                in_use.append(node)
                continue
            self._evict(node)
            n_given += 1
        for node in in_use:
            self._enqueue(node)
        return n_given

    def clear(self) -> None:
        """Forget everything in memory; what is stored stays stored."""
        for node in self._nodes.values():
            self._pool.let_go(node.block)
        self._nodes.clear()
        self._roots.clear()
        self._queue.clear()

    def close(self, patience_s: float = 10.0) -> None:
        """Store everything, parents first, as far as there is time; then forget it. Closing twice is harmless."""
        store, self._store = self._store, None
        if store is not None:
            store.be_patient(patience_s)
            for root in self._roots.values():
                for node in _below(root):
                    store.keep(_stored(node))
            store.close()
        self.clear()

    def _root(self, salt: str) -> _Node:
        root = self._roots.get(salt)
        if root is None:
            name = blake2b(salt.encode(errors="surrogatepass"), key=self._key(), digest_size=32).digest()
            root = self._roots[salt] = _Node(name, None, (), -1, -KV_BLOCK)
        return root

    def _fetch(self, parent: _Node, ids: Sequence[int], n_common: int) -> bool:
        """Fetch a stored block behind `parent` that begins with more than `n_common` of `ids`, if that pays.

        True if the children of `parent` may be others now, for better or, where room had to be made, for worse.
        """
        if self._store is None:
            return False
        found = self._store.find(parent.name, ids)
        if found is None or found.n_common <= n_common or not self._pays(self._store, found.n_common - n_common):
            return False
        try:
            block = self._pool.take()
        except KvPoolFull:
            return False
        if self._store.fetch(found.name, found.tokens, block):
            self._add(parent, found.tokens, block)
        self._pool.release(block)
        return True

    def _pays(self, store: BlockStore, n_tokens: int) -> bool:
        fetch_s = store.seconds_to_fetch
        return fetch_s is None or self.token_s is None or fetch_s < n_tokens * self.token_s

    def _key(self) -> bytes:
        return blake2b(self.identity, digest_size=64).digest()

    def _add(self, parent: _Node, tokens: tuple[int, ...], block: int) -> _Node:
        """The node for these tokens behind a parent's: one there is, one that grows, or a new one."""
        siblings = parent.children.setdefault(tokens[0], [])
        for node in siblings:
            if node.tokens[: len(tokens)] == tokens:
                return node
        shorter = next((node for node in siblings if tokens[: len(node.tokens)] == node.tokens), None)
        if shorter is not None:
            self._pool.let_go(shorter.block)
            del self._nodes[shorter.name]
            siblings.remove(shorter)
        self._pool.keep(block)
        node = _Node(_name(parent.name, tokens), parent, tokens, block, parent.n_before + KV_BLOCK)
        siblings.append(node)
        self._nodes[node.name] = node
        self._touch(node)
        return node

    def _touch(self, node: _Node) -> None:
        """Count a use: what was used lately is worth most, and what is dear to compute a little more."""
        self._n_used += len(node.tokens)
        node.worth = self._n_used + _PATIENCE * len(node.tokens) * (1.0 + node.n_before / _TWICE_AS_DEAR)
        if not node.children:
            self._enqueue(node)

    def _enqueue(self, node: _Node) -> None:
        self._n_queued += 1
        heapq.heappush(self._queue, (node.worth, self._n_queued, node))

    def _evict(self, node: _Node) -> None:
        if self._store is not None:
            self._store.keep(_stored(node))
        parent = node.parent
        assert parent is not None
        siblings = parent.children[node.tokens[0]]
        siblings.remove(node)
        if not siblings:
            del parent.children[node.tokens[0]]
        del self._nodes[node.name]
        self._pool.let_go(node.block)
        if not parent.children and parent.parent is not None:
            self._enqueue(parent)


def _most_alike(node: _Node, ids: Sequence[int], start: int, end: int) -> tuple[_Node | None, int]:
    """The child whose tokens agree longest with ids[start:end], and for how long."""
    best, n_best = None, 0
    for child in node.children.get(ids[start], ()):
        n_common = 0
        for ours, theirs in zip(child.tokens, ids[start : min(end, start + KV_BLOCK)], strict=False):
            if ours != theirs:
                break
            n_common += 1
        if n_common > n_best:
            best, n_best = child, n_common
    return best, n_best


def _below(node: _Node) -> Iterator[_Node]:
    waiting = [child for siblings in node.children.values() for child in siblings]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [child for siblings in node.children.values() for child in siblings]


def _name(parent: bytes, tokens: tuple[int, ...]) -> bytes:
    return blake2b(np.array(tokens, "<u4").tobytes(), key=parent, digest_size=32).digest()


def _stored(node: _Node) -> StoredBlock:
    assert node.parent is not None
    return StoredBlock(node.name, node.parent.name, node.tokens, node.block)
