"""Blocks come back from the disk as they were, or not at all; whatever happens to the files, nothing raises."""

from __future__ import annotations

import errno
import os
import runpy
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from fucina.errors import ConfigError
from fucina.storage.kv.disk.index import Index
from fucina.storage.kv.disk.recovery import KvDiskWarning
from fucina.storage.kv.disk.tier import DiskTier
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.prefix import PrefixCache, StoredBlock
from fucina.storage.kv.sequence import KvSequence

GEOMETRY = KvGeometry((LayerGeometry(kv_heads=1, d_head=8),))
SIZE = GEOMETRY.block_bytes
ROOT = blake2b(b"root", digest_size=32).digest()
MEBIBYTE = 1 << 20
FULL = tuple(range(64))
#: A busy disk may take seconds to sync; nothing takes so long.
PATIENCE_S = 120.0


def make(tokens: Sequence[int], block: int = 0, parent: bytes = ROOT) -> StoredBlock:
    name = blake2b(repr(tuple(tokens)).encode(), key=parent, digest_size=32).digest()
    return StoredBlock(name, parent, tuple(tokens), block)


def content(stored: StoredBlock) -> bytes:
    return np.random.default_rng(list(stored.name)).bytes(SIZE)


@pytest.fixture
def pool() -> KvPool:
    return KvPool(GEOMETRY, 4)


@pytest.fixture
def tier(tmp_path: Path, pool: KvPool) -> Iterator[DiskTier]:
    tier = DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE)
    yield tier
    tier.close(PATIENCE_S)


def keep(tier: DiskTier, pool: KvPool, *blocks: StoredBlock) -> None:
    for stored in blocks:
        place = slice(stored.block * SIZE, (stored.block + 1) * SIZE)
        pool.memory[place] = content(stored)
        tier.keep(stored)
        pool.memory[place] = bytes(SIZE)  # the block is used again at once


def comes_back(tier: DiskTier, pool: KvPool, stored: StoredBlock) -> bool:
    """Whether a block is found by its tokens; what is given must be right."""
    found = tier.find(stored.parent, stored.tokens)
    if found is None or found.name != stored.name or not tier.fetch(found.name, found.tokens, 3):
        return False
    assert found.tokens == stored.tokens
    assert pool.memory[3 * SIZE : 4 * SIZE] == content(stored)
    return True


def segments(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "kv").glob("*.kv1"))


def test_a_block_comes_back_while_it_waits_when_stored_and_after_a_restart(tmp_path: Path, pool: KvPool) -> None:
    tier, stored = DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE), make(FULL)
    keep(tier, pool, stored)
    assert comes_back(tier, pool, stored)
    assert tier.flush(PATIENCE_S) and tier.n_stored == 1
    assert comes_back(tier, pool, stored)
    assert tier.close(PATIENCE_S)
    tier = DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE)
    assert comes_back(tier, pool, stored)
    keep(tier, pool, stored)
    assert tier.close(PATIENCE_S)
    assert (tier.n_stored, tier.counters.n_known, tier.counters.n_restored) == (0, 1, 1)
    assert tier.close(PATIENCE_S)


def test_after_the_end_nothing_is_kept_or_found(tier: DiskTier, pool: KvPool) -> None:
    stored = make(FULL)
    keep(tier, pool, stored)
    assert tier.close(PATIENCE_S)
    keep(tier, pool, make(FULL[1:]))
    assert tier.find(ROOT, FULL) is None
    assert not tier.fetch(stored.name, FULL, 3)
    assert tier.counters.n_dropped == 1


def test_what_agrees_longest_is_found(tier: DiskTier, pool: KvPool) -> None:
    branches = [make((*FULL[:n], 1000 + n, *FULL[:3])) for n in (5, 9, 30)]
    other = make(FULL, parent=blake2b(b"other", digest_size=32).digest())
    keep(tier, pool, *branches, other)
    for _ in "waiting", "stored":
        found = tier.find(ROOT, FULL)
        assert found == (branches[2].name, branches[2].tokens, 30)
        found = tier.find(ROOT, (*FULL[:9], 1009, 7))
        assert found == (branches[1].name, branches[1].tokens, 10)
        assert tier.find(ROOT, FULL[:2]) is not None
        assert tier.find(ROOT, (7, *FULL)) is None
        assert tier.find(ROOT, ()) is None
        assert tier.flush(PATIENCE_S)


def test_a_block_that_grows_takes_the_place_of_the_shorter_one(tier: DiskTier, pool: KvPool) -> None:
    short, long = make(FULL[:10]), make(FULL[:20])
    keep(tier, pool, short)
    assert tier.flush(PATIENCE_S)
    keep(tier, pool, long)
    assert tier.flush(PATIENCE_S)
    assert not tier.fetch(short.name, short.tokens, 3)
    assert comes_back(tier, pool, long)
    keep(tier, pool, short)  # all of it is in the longer one
    assert tier.flush(PATIENCE_S) and tier.n_stored == 2


def test_tokens_are_compared(tier: DiskTier, pool: KvPool) -> None:
    stored = make(FULL)
    keep(tier, pool, stored)
    for _ in "waiting", "stored":
        assert not tier.fetch(stored.name, (*FULL[:-1], 7), 3)
        assert not tier.fetch(stored.name, (*FULL, 64), 3)
        assert tier.fetch(stored.name, FULL[:5], 3)
        assert tier.flush(PATIENCE_S)


def test_models_share_a_directory_and_no_block(tmp_path: Path, pool: KvPool, tier: DiskTier) -> None:
    stored = make(FULL)
    keep(tier, pool, stored)
    assert tier.flush(PATIENCE_S)
    wider = KvPool(KvGeometry((LayerGeometry(kv_heads=2, d_head=8),)), 4)
    for identity, memory in ((b"another model", pool), (b"model", wider)):
        other = DiskTier(tmp_path / "kv", memory, identity, MEBIBYTE)
        assert other.find(ROOT, FULL) is None
        assert not other.fetch(stored.name, FULL, 3)
        assert other.close(PATIENCE_S)


def test_a_full_queue_drops_and_a_patient_one_waits(tmp_path: Path, pool: KvPool) -> None:
    tier = DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE, queue_bytes=2 * SIZE)
    blocks = [make((n, *FULL)[:64]) for n in range(100)]
    keep(tier, pool, *blocks[:50])
    tier.be_patient(PATIENCE_S)
    keep(tier, pool, *blocks[50:])
    assert tier.flush(PATIENCE_S)
    assert all(comes_back(tier, pool, stored) for stored in blocks[50:])
    kept = sum(comes_back(tier, pool, stored) for stored in blocks)
    assert (kept, kept) == (tier.counters.n_kept, 100 - tier.counters.n_dropped)
    assert tier.close(PATIENCE_S)


def test_the_coldest_segments_go_when_the_capacity_is_reached(tmp_path: Path, pool: KvPool) -> None:
    record, capacity = SIZE + 512, 64 * (SIZE + 512)
    tier = DiskTier(tmp_path / "kv", pool, b"model", capacity)
    blocks = [make((n, *FULL)[:64]) for n in range(200)]
    for n, stored in enumerate(blocks):
        keep(tier, pool, stored)
        assert tier.flush(PATIENCE_S)
        assert sum(path.stat().st_size for path in segments(tmp_path)) <= capacity
        assert comes_back(tier, pool, blocks[0]), n  # in use all the time, and so is its segment
    assert tier.n_segments_removed > 0
    there = [n for n, stored in enumerate(blocks) if comes_back(tier, pool, stored)]
    assert there[0] == 0 and there[-1] == 199
    assert (64 - 2 * 8) * record <= len(there) * record <= capacity
    late = [n for n in there if n >= 8]
    assert late == list(range(late[0], 200))
    assert tier.close(PATIENCE_S)


def test_prefix_cache_and_disk_tier_agree_on_names(pool: KvPool, tier: DiskTier) -> None:
    cache = PrefixCache(pool, b"model", tier)
    kv = KvSequence(pool)
    kv.reserve(100)
    pool.memory[: 2 * SIZE] = both = np.random.default_rng(0).bytes(2 * SIZE)
    kv.advance(100)
    cache.insert(range(100), kv.blocks, 100)
    kv.close()
    assert cache.reclaim(2) == 2
    assert tier.flush(PATIENCE_S)
    for start, n_tokens in ((0, 64), (64, 36)):
        found = tier.find(cache.name_of(range(100), start), range(start, 100))
        assert found is not None and found.n_common == n_tokens
        assert tier.fetch(found.name, found.tokens, 3)
        offset = start // 64 * SIZE
        assert pool.memory[3 * SIZE :] == both[offset : offset + SIZE]


def test_a_row_that_points_at_another_block_is_a_miss(tmp_path: Path, tier: DiskTier, pool: KvPool) -> None:
    """Also when that block begins with the tokens asked for: a name stands for all tokens before it as well."""
    stored, other = make(FULL), make(FULL, parent=blake2b(b"other", digest_size=32).digest())
    keep(tier, pool, stored, other)
    assert tier.flush(PATIENCE_S)
    (index,) = (tmp_path / "kv").glob("*.sqlite")
    with sqlite3.connect(index) as connection:
        both = "(SELECT MIN(start) + MAX(start) FROM blocks)"
        connection.execute(f"UPDATE blocks SET start = {both} - start")
    connection.close()
    assert not comes_back(tier, pool, stored) and not comes_back(tier, pool, other)
    assert tier.counters.n_damaged == 2


@pytest.mark.parametrize("place", [0, 100, 511, 512, 512 + SIZE - 1])
def test_a_flipped_bit_is_a_miss_and_the_block_can_be_stored_again(
    tmp_path: Path, tier: DiskTier, pool: KvPool, place: int
) -> None:
    stored = make(FULL)
    keep(tier, pool, stored)
    assert tier.flush(PATIENCE_S)
    with segments(tmp_path)[0].open("r+b") as file:
        file.seek(512 + place)
        (byte,) = file.read(1)
        file.seek(512 + place)
        file.write(bytes([byte ^ 4]))
    assert not comes_back(tier, pool, stored)
    assert tier.counters.n_damaged == 1
    keep(tier, pool, stored)
    assert tier.flush(PATIENCE_S)
    assert comes_back(tier, pool, stored) and tier.n_stored == 2


@pytest.mark.parametrize(
    "damage", ["gone", "noise", "unknown format", "no UTF-8", "another program's", "cut", "altered", "wrong types"]
)
def test_an_index_that_is_lost_is_made_anew_from_the_segments(tmp_path: Path, pool: KvPool, damage: str) -> None:
    tier = DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE)
    blocks = [make((n, *FULL)[: 20 + n]) for n in range(40)]
    tier.be_patient(PATIENCE_S)
    keep(tier, pool, *blocks)
    assert tier.close(PATIENCE_S)
    (index,) = (tmp_path / "kv").glob("*.sqlite")
    _damage(index, damage)
    damaged = index.read_bytes() if index.exists() else b""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tier = DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE)
    assert [w.category for w in said] == ([] if damage == "gone" else [KvDiskWarning])
    assert all(comes_back(tier, pool, stored) for stored in blocks)
    assert not said or index.read_bytes() == damaged  # left alone
    assert tier.close(PATIENCE_S)


def _damage(index: Path, damage: str) -> None:
    if damage == "gone":
        index.unlink()
    elif damage == "noise":
        index.write_bytes(np.random.default_rng(0).bytes(20000))
    elif damage == "unknown format":
        with index.open("r+b") as file:
            file.seek(44)  # the number of the schema's format, which is 4 at most
            file.write(b"\0\0\0\5")
    elif damage == "no UTF-8":
        index.write_bytes(index.read_bytes().replace(b"children", b"childre\x80"))  # SQLite's messages quote it
    elif damage == "cut":
        os.truncate(index, index.stat().st_size // 2 + 100)
    else:
        if damage == "another program's":
            index.unlink()
        statement = {
            "another program's": "CREATE TABLE segments (id INTEGER PRIMARY KEY, file TEXT, end INTEGER)",
            "altered": "DROP INDEX children",
            "wrong types": "UPDATE segments SET end = 'far'",
        }[damage]
        with sqlite3.connect(index) as connection:
            connection.execute("PRAGMA ignore_check_constraints=1")
            connection.execute(statement)
        connection.close()


def test_files_of_others_are_left_alone(tmp_path: Path, pool: KvPool) -> None:
    home = tmp_path / "kv"
    home.mkdir(mode=0o700)
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious" * 100)
    (home / "notes.txt").write_text("mine")
    (home / f"{'0' * 32}.kv1").write_bytes(b"not a segment" * 100)
    (home / f"{'1' * 32}.kv1").symlink_to(outside)
    (home / f"{'2' * 32}.kv1").mkdir()
    os.mkfifo(home / f"{'3' * 32}.kv1")
    (home / f"{'4' * 32}.kv1").write_bytes(b"FUKV")  # ours, killed when it was made
    before = {path.name for path in home.iterdir()}
    tier = DiskTier(home, pool, b"model", 8 * (SIZE + 1024))
    tier.be_patient(PATIENCE_S)
    keep(tier, pool, *(make((n, *FULL)[:64]) for n in range(40)))
    assert tier.close(PATIENCE_S)
    assert before - {path.name for path in home.iterdir()} == {f"{'4' * 32}.kv1"}
    assert outside.read_bytes() == b"precious" * 100
    assert (home / f"{'0' * 32}.kv1").read_bytes() == b"not a segment" * 100


def test_a_segment_swapped_for_a_link_is_not_followed(tmp_path: Path, tier: DiskTier, pool: KvPool) -> None:
    stored = make(FULL)
    keep(tier, pool, stored)
    assert tier.flush(PATIENCE_S)
    (segment,) = segments(tmp_path)
    segment.rename(tmp_path / "moved")
    segment.symlink_to(tmp_path / "moved")
    assert not comes_back(tier, pool, stored)


def test_everything_is_private(tmp_path: Path, tier: DiskTier, pool: KvPool) -> None:
    keep(tier, pool, make(FULL))
    assert tier.flush(PATIENCE_S)
    assert (tmp_path / "kv").stat().st_mode & 0o777 == 0o700
    files = list((tmp_path / "kv").iterdir())
    assert len(files) == 5  # lock, index, its journal and shared memory, one segment
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_unsafe_directories_are_refused(tmp_path: Path, pool: KvPool) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "linked").mkdir(mode=0o700)
    (tmp_path / "linked" / "kv1.1.sqlite").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "locked").mkdir(mode=0o700)
    (tmp_path / "locked" / "kv1.lock").symlink_to(tmp_path / "elsewhere")
    for name in ("link", "file", "open", "linked", "locked", "file/below"):
        with pytest.raises(ConfigError, match="kv_cache_dir"):
            DiskTier(tmp_path / name, pool, b"model", MEBIBYTE)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(ConfigError, match="kv_disk"):
        DiskTier(tmp_path / "kv", pool, b"model", SIZE)


def test_somebody_elses_directory_is_refused(tmp_path: Path, pool: KvPool) -> None:
    (tmp_path / "kv").mkdir(mode=0o700)
    with patch("os.geteuid", return_value=os.geteuid() + 1), pytest.raises(ConfigError, match="belongs to the user"):
        DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE)


def test_a_directory_that_cannot_be_made_or_written_is_refused(tmp_path: Path, pool: KvPool) -> None:
    (tmp_path / "kv").mkdir(mode=0o500)
    with patch("os.open", side_effect=_read_only(os.open)), pytest.raises(ConfigError, match="made, read and written"):
        DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE)
    with pytest.raises(ConfigError, match="made, read and written"):
        DiskTier(Path("/proc/kv"), pool, b"model", MEBIBYTE)


def _read_only(system: Callable[..., int]) -> Callable[..., int]:
    """`os.open` on a file system mounted read-only, also for root."""

    def open_to_read(path: str, flags: int, *mode: int, **where: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return system(path, flags, *mode, **where)

    return open_to_read


def test_two_at_once_write_and_read_what_the_other_wrote(tmp_path: Path, pool: KvPool) -> None:
    tiers = [DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE) for _ in range(2)]
    blocks = [make((n, *FULL)[:64]) for n in range(60)]
    for tier in tiers:
        tier.be_patient(PATIENCE_S)
    for n, stored in enumerate(blocks):
        keep(tiers[n % 2], pool, stored)
    for tier in tiers:
        assert tier.flush(PATIENCE_S)
    assert len(segments(tmp_path)) == 2  # each its own
    for tier in tiers:
        assert all(comes_back(tier, pool, stored) for stored in blocks)
    third = DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE)  # a start beside them cuts nothing
    assert all(comes_back(third, pool, stored) for stored in blocks)
    for tier in (*tiers, third):
        assert tier.close(PATIENCE_S)


def test_a_process_that_comes_and_goes_leaves_our_journal_alone(tmp_path: Path, pool: KvPool, tier: DiskTier) -> None:
    """SQLite's locks end when any descriptor of its file is closed; the last to leave would then delete the journal."""
    keep(tier, pool, make(FULL))
    assert tier.flush(PATIENCE_S)
    DiskTier(tmp_path / "kv", pool, b"another model", MEBIBYTE).close(PATIENCE_S)
    (journal,) = (tmp_path / "kv").glob("*-wal")
    before = journal.stat().st_ino
    code = f"import sqlite3; sqlite3.connect({str(journal)[:-4]!r}).execute('SELECT * FROM blocks').fetchall()"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert journal.stat().st_ino == before


def test_an_index_damaged_in_use_ends_writing_and_is_mended_by_the_next_start(tmp_path: Path, pool: KvPool) -> None:
    tier = DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE)
    keep(tier, pool, make(FULL))
    assert tier.flush(PATIENCE_S)
    with patch.object(Index, "covers", side_effect=sqlite3.DatabaseError("database disk image is malformed")):
        keep(tier, pool, make(FULL[1:]))
        with pytest.warns(KvDiskWarning, match="malformed"):
            assert not tier.flush(PATIENCE_S)
    assert not tier.close(PATIENCE_S)
    tier = DiskTier(tmp_path / "kv", pool, b"model", MEBIBYTE)
    assert comes_back(tier, pool, make(FULL))
    assert len(list((tmp_path / "kv").glob("*.sqlite"))) == 2
    assert tier.close(PATIENCE_S)


def test_what_another_adds_before_it_lets_go_of_a_segment_is_not_cut(tmp_path: Path, pool: KvPool) -> None:
    """A start and a first block find a segment that is promised to be longer than it was a moment ago."""
    for action in "start", "first block":
        first = DiskTier(tmp_path / action, pool, b"model", MEBIBYTE)
        keep(first, pool, make(FULL))
        assert first.flush(PATIENCE_S)
        second = DiskTier(tmp_path / action, pool, b"model", MEBIBYTE)
        stale = second._index.segments()
        keep(first, pool, make(FULL[1:]))
        assert first.close(PATIENCE_S)
        with patch.object(Index, "segments", return_value=stale):
            if action == "start":
                assert second.close(PATIENCE_S)
                second = DiskTier(tmp_path / action, pool, b"model", MEBIBYTE)
            keep(second, pool, make(FULL[2:]))
            assert second.flush(PATIENCE_S)
        for start in range(3):
            assert comes_back(second, pool, make(FULL[start:])), (action, start)
        assert second.close(PATIENCE_S)


def test_two_processes_on_one_directory(tmp_path: Path) -> None:
    path = Path(__file__).with_name("kill_disk.py")
    child = runpy.run_path(str(path))
    command = [sys.executable, str(path), str(tmp_path / "kv")]
    processes = [subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True) for seed in (1, 2)]
    promised = list[int]()
    for process in processes:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(8)]
        assert lines[:2] == [["start"], ["open"]]
        for _, first, count in lines[2:]:
            promised += range(int(first), int(first) + int(count))
    for process in processes:
        process.kill()
        process.communicate()
    assert {number // 100_000 for number in promised} == {1, 2}
    pool = KvPool(child["GEOMETRY"], 1)
    tier = DiskTier(tmp_path / "kv", pool, child["IDENTITY"], child["CAPACITY_BYTES"])
    for number in promised:
        stored = child["stored"](number, 0)
        assert tier.fetch(stored.name, stored.tokens, 0) and child["got"](pool, 0) == child["content"](number)
    assert tier.close(PATIENCE_S)
