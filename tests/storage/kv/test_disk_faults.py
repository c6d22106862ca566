"""Every way to the disk fails once, and files are damaged at random: never a wrong block, never an error in a step."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fucina.storage.kv.disk.files import Files
from fucina.storage.kv.disk.index import Index
from fucina.storage.kv.disk.record import SEGMENT_HEADER
from fucina.storage.kv.disk.recovery import KvDiskWarning
from fucina.storage.kv.disk.tier import DiskTier
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.prefix import StoredBlock

GEOMETRY = KvGeometry((LayerGeometry(kv_heads=1, d_head=4),))
SIZE = GEOMETRY.block_bytes
ROOT = blake2b(b"root", digest_size=32).digest()
SEGMENT_BYTES = 512 + 4 * (512 + SIZE)


class Faulty(Files):
    """Calls of one kind work `n_good` times, then fail; where `is_short`, every call moves a few bytes only."""

    def __init__(self) -> None:
        self.kind, self.n_good, self.code = "", 0, 0
        self.is_short = False

    def arm(self, kind: str, n_good: int, code: int) -> None:
        self.kind, self.n_good, self.code = kind, n_good, code

    def _count(self, kind: str) -> None:
        if kind == self.kind:
            self.n_good -= 1
            if self.n_good < 0:
                raise OSError(self.code, os.strerror(self.code))

    def write_some(self, fd: int, parts: Sequence[memoryview], offset: int) -> int:
        self._count("write")
        return super().write_some(fd, _few(parts) if self.is_short or self.kind == "write" else parts, offset)

    def read_some(self, fd: int, parts: Sequence[memoryview], offset: int) -> int:
        self._count("read")
        return super().read_some(fd, _few(parts) if self.is_short else parts, offset)

    def sync(self, fd: int) -> None:
        self._count("sync")
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._count("truncate")
        super().truncate(fd, size)


def _few(parts: Sequence[memoryview]) -> list[memoryview]:
    return [parts[0][: max(1, len(parts[0]) * 2 // 3)]]


def stored(number: int) -> StoredBlock:
    tokens = (number, *range(number % 64))
    return StoredBlock(blake2b(repr(tokens).encode(), digest_size=32).digest(), ROOT, tokens, 0)


def content(number: int) -> bytes:
    return np.random.default_rng(number).bytes(SIZE)


def open_tier(directory: Path, pool: KvPool, files: Files) -> DiskTier:
    return DiskTier(directory, pool, b"model", 8 * SEGMENT_BYTES, files=files)


def keep(tier: DiskTier, pool: KvPool, number: int) -> None:
    pool.memory[:SIZE] = content(number)
    tier.keep(stored(number))


def is_back(tier: DiskTier, pool: KvPool, number: int) -> bool:
    """Whether a block can be fetched; what is given must be right."""
    found = tier.find(ROOT, stored(number).tokens)
    if found is None or not tier.fetch(found.name, found.tokens, 1):
        return False
    assert found.name == stored(number).name and found.tokens == stored(number).tokens
    assert pool.memory[SIZE:] == content(number)
    return True


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_writing_that_fails_at_any_call_is_over_with_one_warning(tmp_path: Path, kind: str, code: int) -> None:
    for n_good in range(12):
        directory, pool, files = tmp_path / str(n_good), KvPool(GEOMETRY, 2), Faulty()
        files.arm(kind, n_good, code)
        tier = open_tier(directory, pool, files)
        promised, said = [], []
        for number in range(8):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                keep(tier, pool, number)
                if tier.flush(60):
                    promised.append(number)
                said += caught
        assert [w.category for w in said] == [KvDiskWarning] * (len(promised) < 8)
        assert (tier.failure is None) == (len(promised) == 8)
        assert promised == list(range(len(promised)))
        assert all(is_back(tier, pool, number) for number in promised)  # reading goes on
        assert tier.close(60) == (tier.failure is None)
        tier = open_tier(directory, pool, Files())
        for number in range(8):
            assert is_back(tier, pool, number) == (number in promised)
        keep(tier, pool, 9)
        assert tier.close(60) and tier.n_stored == 1


@pytest.mark.parametrize("n_good", range(6))
def test_an_index_that_fails_ends_writing_too(tmp_path: Path, n_good: int) -> None:
    pool = KvPool(GEOMETRY, 2)
    tier = open_tier(tmp_path, pool, Files())
    commit, left = Index.commit, [n_good]

    def failing(self: Index, *what: object, **more: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise sqlite3.OperationalError("database or disk is full")
        commit(self, *what, **more)  # type: ignore[arg-type]

    promised = []
    with patch.object(Index, "commit", failing), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(8):
            keep(tier, pool, number)
            promised += [number] if tier.flush(60) else []
    assert [w.category for w in said] == [KvDiskWarning]
    assert len(promised) == n_good
    assert [is_back(tier, pool, number) for number in range(8)] == [number in promised for number in range(8)]
    assert not tier.close(60)
    tier = open_tier(tmp_path, pool, Files())
    assert [is_back(tier, pool, number) for number in range(8)] == [number in promised for number in range(8)]
    assert tier.close(60)


def test_short_reads_and_writes_go_on_where_they_stopped(tmp_path: Path) -> None:
    pool, files = KvPool(GEOMETRY, 2), Faulty()
    files.is_short = True
    tier = open_tier(tmp_path, pool, files)
    for number in range(10):
        keep(tier, pool, number)
    assert tier.flush(60)
    assert all(is_back(tier, pool, number) for number in range(10))
    assert tier.close(60)


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_a_record_that_cannot_be_read_is_a_miss(tmp_path: Path, code: int) -> None:
    pool, files = KvPool(GEOMETRY, 2), Faulty()
    tier = open_tier(tmp_path, pool, files)
    keep(tier, pool, 1)
    assert tier.flush(60)
    files.arm("read", 0, code)
    assert not is_back(tier, pool, 1)
    files.arm("", 0, 0)
    assert is_back(tier, pool, 1) == (code == errno.EMFILE)  # what may come back is not forgotten
    keep(tier, pool, 1)
    assert tier.flush(60) and is_back(tier, pool, 1)
    assert tier.close(60)


class Battered(RuleBasedStateMachine):
    """A tier whose files are damaged at random; `sure` are blocks that must be there, as nothing was damaged since."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.pool = KvPool(GEOMETRY, 2)
        self.files = Faulty()
        self.tier = open_tier(self.directory, self.pool, self.files)
        self.kept: set[int] = set()
        self.sure: list[int] = []
        self.is_damaged = False  # some segment, by us
        self.noise_bytes = 0  # that may lie behind the ends of segments

    def teardown(self) -> None:
        self.tier.close(60)
        shutil.rmtree(self.directory)

    @rule(numbers=st.lists(st.integers(0, 80), min_size=1, max_size=6))
    def keep(self, numbers: list[int]) -> None:
        for number in numbers:
            if not is_back(self.tier, self.pool, number):
                keep(self.tier, self.pool, number)
                self.kept.add(number)
                self.sure.append(number)

    @rule(number=st.integers(0, 80))
    def fetch(self, number: int) -> None:
        assert not is_back(self.tier, self.pool, number) or number in self.kept

    @rule()
    def restart(self) -> None:
        assert self.tier.close(60)
        self.tier = open_tier(self.directory, self.pool, self.files)

    @rule(is_short=st.booleans())
    def stutter(self, is_short: bool) -> None:
        self.files.is_short = is_short

    @rule(
        which=st.integers(0, 7),
        place=st.integers(0, 4000),
        how=st.sampled_from(["flip", "cut", "delete", "lengthen"]),
        noise=st.binary(min_size=1, max_size=600),
    )
    def damage(self, which: int, place: int, how: str, noise: bytes) -> None:
        assert self.tier.flush(60)  # else the writer removes what we are about to damage
        self.sure.clear()
        self.is_damaged = True
        self.noise_bytes += len(noise)
        segments = self.segments()
        if not segments:
            return
        segment = segments[which % len(segments)]
        place %= max(1, segment.stat().st_size)
        if how == "cut":
            os.truncate(segment, place)
        elif how == "delete":
            segment.unlink()
        else:
            with segment.open("r+b") as file:
                file.seek(place if how == "flip" else 0, os.SEEK_SET if how == "flip" else os.SEEK_END)
                file.write(noise)

    @rule(how=st.sampled_from(["lose", "noise", "flip"]), place=st.integers(0, 20000), noise=st.binary(min_size=1))
    def damage_index(self, how: str, place: int, noise: bytes) -> None:
        assert self.tier.close(60)
        index = max(self.directory.glob("*.sqlite"), key=lambda path: int(path.name.split(".")[1]))
        if how == "lose":
            index.unlink()
            if self.is_damaged:
                self.sure.clear()  # a segment tells its records up to the damage, if nothing else does
        else:
            with index.open("r+b") as file:
                file.seek(0 if how == "noise" else place % index.stat().st_size)
                file.write(noise)
            self.sure.clear()  # a row that still looks like one may say anything
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KvDiskWarning)
            self.tier = open_tier(self.directory, self.pool, self.files)

    @rule()
    def all_is_well(self) -> None:
        assert self.tier.flush(60) and self.tier.failure is None
        assert self.tier.counters.n_unanswered == 0
        ours = [path for path in self.segments() if path.read_bytes().startswith(SEGMENT_HEADER)]  # as others see it
        assert sum(path.stat().st_size for path in ours) <= 8 * SEGMENT_BYTES + self.noise_bytes

    @invariant()
    def newest_are_there(self) -> None:
        for number in self.sure[-12:]:  # what is older may have had to make room
            assert is_back(self.tier, self.pool, number)

    def segments(self) -> list[Path]:
        return sorted(self.directory.glob("*.kv1"), key=lambda path: path.stat().st_mtime_ns)


Battered.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestBattered = Battered.TestCase
