"""A process to be killed: it stores blocks, and says which ones were promised to be on the disk.

Usage: kill_disk.py DIRECTORY SEED. Prints `kept FIRST COUNT` for blocks whose flush returned True. A block's number
says all about it, its bytes too, so that who reads them can tell what they should be.
"""

from __future__ import annotations

import random
import sys
from hashlib import blake2b
from pathlib import Path

import numpy as np

from fucina.storage.kv.disk.tier import DiskTier
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.prefix import StoredBlock

GEOMETRY = KvGeometry((LayerGeometry(kv_heads=2, d_head=64),) * 2)  # 64 KiB a block
IDENTITY = b"a model"
CAPACITY_BYTES = 1 << 30
N_SLOTS = 16


def stored(number: int, block: int) -> StoredBlock:
    """The block of that number; every third one is not full."""
    rng = random.Random(number)
    n_tokens = 64 if number % 3 else rng.randrange(1, 64)
    tokens = (number, *(rng.randrange(1 << 32) for _ in range(n_tokens - 1)))
    parent = blake2b(b"root", digest_size=32).digest()
    return StoredBlock(blake2b(repr(tokens).encode(), digest_size=32).digest(), parent, tokens, block)


def content(number: int) -> bytes:
    """The bytes of the block of that number."""
    return np.random.default_rng(number).bytes(GEOMETRY.block_bytes)


def put(pool: KvPool, block: int, data: bytes) -> None:
    pool.memory[block * len(data) : (block + 1) * len(data)] = data


def got(pool: KvPool, block: int) -> bytes:
    size = pool.geometry.block_bytes
    return pool.memory[block * size : (block + 1) * size]


def main() -> None:
    directory, seed = Path(sys.argv[1]), int(sys.argv[2])
    pool = KvPool(GEOMETRY, N_SLOTS)
    print("start", flush=True)
    tier = DiskTier(directory, pool, IDENTITY, CAPACITY_BYTES, queue_bytes=N_SLOTS * GEOMETRY.block_bytes)
    print("open", flush=True)
    rng = random.Random(seed)
    first = seed * 100_000
    while True:
        count = rng.randrange(1, N_SLOTS)
        for number in range(first, first + count):
            put(pool, number % N_SLOTS, content(number))
            tier.keep(stored(number, number % N_SLOTS))
        if tier.flush(60) and tier.counters.n_dropped == 0:
            print(f"kept {first} {count}", flush=True)
        first += count


if __name__ == "__main__":
    main()
