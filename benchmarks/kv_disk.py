"""What a block costs on its way to the disk and back, beside the disk itself and beside computing it again.

Claims: a restore is several times faster than recomputation and close to the disk's own rate; the engine's thread pays
one copy for a block that leaves; a directory with 10,000 blocks opens in under 200 ms.
Usage: kv_disk.py [--directory DIR] [--megabytes N] [--blocks N] [--model GGUF ...]. Prints one line a figure, then one
JSON line. `cold` has the page cache dropped for the files first (posix_fadvise), `warm` has them in it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import numpy as np

from fucina.core.cpu import usable_cpus
from fucina.decoding.params import SamplingParams
from fucina.engine.assemble import load
from fucina.storage.kv.disk.files import Files
from fucina.storage.kv.disk.record import pack_tokens
from fucina.storage.kv.disk.tier import DiskTier
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.prefix import StoredBlock

SHAPES = {
    "smollm2-135m": KvGeometry((LayerGeometry(kv_heads=3, d_head=64),) * 30),
    "qwen3-0.6b": KvGeometry((LayerGeometry(kv_heads=8, d_head=128),) * 28),
}
TINY = KvGeometry((LayerGeometry(kv_heads=1, d_head=2),))
ROOT = bytes(32)
GIGA = 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="on the disk to measure; a temporary one by default")
    parser.add_argument("--megabytes", type=int, default=512, help="of blocks that are stored and restored")
    parser.add_argument("--blocks", type=int, default=10_000, help="in the directory that is opened")
    parser.add_argument("--model", type=Path, action="append", default=[], help="to compute 64 tokens with")
    options = parser.parse_args()
    record: dict[str, object] = {"cpus": usable_cpus(), "megabytes": options.megabytes}
    with tempfile.TemporaryDirectory(dir=options.directory) as scratch:
        for shape, geometry in SHAPES.items():
            record[shape] = traffic(Path(scratch, shape), geometry, (options.megabytes << 20) // geometry.block_bytes)
        record["start"] = start(Path(scratch, "start"), options.blocks)
    for path in options.model:
        record[path.name] = recomputation(path)
    for name, figures in record.items():
        for figure, value in figures.items() if isinstance(figures, dict) else ():
            print(f"{name:28s} {figure:36s} {value:10.3f}")
    print(json.dumps(record))


def traffic(directory: Path, geometry: KvGeometry, n_blocks: int) -> dict[str, float]:
    """Store blocks and fetch them again, and do the same with one plain file."""
    pool = KvPool(geometry, 2)
    size = geometry.block_bytes
    pool.memory[:size] = np.random.default_rng(0).bytes(size)
    tier = DiskTier(directory, pool, b"model", 64 << 30)
    blocks = [stored(number) for number in range(n_blocks)]
    tier.be_patient(600)
    keep_s = []
    before = time.perf_counter()
    for block in blocks:
        called = time.perf_counter()
        tier.keep(block)
        keep_s.append(time.perf_counter() - called)
    tier.flush(600)
    written_s = time.perf_counter() - before
    assert tier.n_stored == n_blocks
    figures = {
        "block MiB": size / (1 << 20),
        "keep, ms in a step (least)": min(keep_s) * 1e3,
        "keep, GB/s to the disk": n_blocks * size / written_s / GIGA,
        "plain write and sync, GB/s": plain_write(directory / "plain", size, n_blocks),
    }
    for state in "cold", "warm":
        drop(directory.iterdir(), state == "cold")
        figures[f"plain read, GB/s, {state}"] = plain_read(directory / "plain", pool, n_blocks)
    for state in "cold", "warm":
        drop(directory.iterdir(), state == "cold")
        restored = restore_s(tier, blocks)
        figures[f"restore, GB/s, {state}"] = n_blocks * size / sum(restored) / GIGA
        figures[f"restore, ms a block, {state}"] = statistics.median(restored) * 1e3
    tier.close()
    return figures


def restore_s(tier: DiskTier, blocks: list[StoredBlock]) -> list[float]:
    """Seconds for each block, found by its tokens and fetched."""
    took = []
    for block in blocks:
        before = time.perf_counter()
        found = tier.find(ROOT, block.tokens)
        assert found is not None and tier.fetch(found.name, found.tokens, 1)
        took.append(time.perf_counter() - before)
    return took


def stored(number: int) -> StoredBlock:
    tokens = (number, *range(63))
    return StoredBlock(blake2b(pack_tokens(tokens), digest_size=32).digest(), ROOT, tokens, 0)


def plain_write(path: Path, size: int, n_blocks: int) -> float:
    """Append the same bytes to one file, with a sync every eight blocks."""
    data, files = memoryview(np.random.default_rng(0).bytes(size)), Files()
    with path.open("wb") as file:
        before = time.perf_counter()
        for number in range(n_blocks):
            files.write(file.fileno(), [data], number * size)
            if number % 8 == 7:
                files.sync(file.fileno())
        files.sync(file.fileno())
        return n_blocks * size / (time.perf_counter() - before) / GIGA


def plain_read(path: Path, pool: KvPool, n_blocks: int) -> float:
    """Read one file into the same memory."""
    size, files = pool.geometry.block_bytes, Files()
    with path.open("rb") as file, memoryview(pool.memory) as memory:
        before = time.perf_counter()
        for number in range(n_blocks):
            assert files.read(file.fileno(), [memory[size : 2 * size]], number * size)
        return n_blocks * size / (time.perf_counter() - before) / GIGA


def drop(paths: Iterable[Path], is_cold: bool) -> None:
    for path in paths if is_cold else ():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def start(directory: Path, n_blocks: int) -> dict[str, float]:
    """Open a directory with many small blocks: as it was left, without its index, and with everything out of memory."""
    pool = KvPool(TINY, 2)
    tier = DiskTier(directory, pool, b"model", 1 << 30)
    tier.be_patient(600)
    for number in range(n_blocks):
        tier.keep(stored(number))
    tier.close(600)
    assert tier.n_stored == n_blocks
    figures = {"blocks": float(n_blocks)}
    for state in "cold", "warm":
        drop(directory.iterdir(), state == "cold")
        figures[f"open, ms, {state}"] = opening_s(directory, pool) * 1e3
    next(directory.glob("*.sqlite")).unlink()
    figures["open without an index, ms"] = opening_s(directory, pool) * 1e3
    tier = DiskTier(directory, pool, b"model", 1 << 30)
    figures["find, us"] = statistics.median(found_s(tier, stored(n)) for n in range(0, n_blocks, 7)) * 1e6
    tier.close()
    return figures


def opening_s(directory: Path, pool: KvPool) -> float:
    before = time.perf_counter()
    tier = DiskTier(directory, pool, b"model", 1 << 30)
    took = time.perf_counter() - before
    tier.close()
    return took


def found_s(tier: DiskTier, block: StoredBlock) -> float:
    before = time.perf_counter()
    found = tier.find(ROOT, block.tokens)
    assert found is not None
    return time.perf_counter() - before


def recomputation(path: Path) -> dict[str, float]:
    """Milliseconds for a block of a prompt: the difference between prompts of 512 and 1024 tokens, by 8."""
    model = load(path)
    params = SamplingParams(max_tokens=1, ignore_eos=True)
    took = {}
    for n_tokens in (512, 1024):
        ids = [1 + n % 1000 for n in range(n_tokens)]
        before = time.perf_counter()
        list(model.stream(ids, params))
        took[n_tokens] = time.perf_counter() - before
    return {"compute again, ms a block": (took[1024] - took[512]) / 8 * 1e3}


if __name__ == "__main__":
    main()
