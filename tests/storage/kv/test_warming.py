"""Memory is touched ahead of need, nothing in it changes, and it gets no more than it was asked."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys

import numpy as np
import pytest

from fucina.storage.kv.warming import Warming

MIB = 1 << 20


def _can_populate() -> bool:
    """Whether this kernel makes pages without writing to them: Linux from 5.14 on."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return sys.platform == "linux" and version is not None and (int(version[1]), int(version[2])) >= (5, 14)


linux = pytest.mark.skipif(not _can_populate(), reason="only Linux from 5.14 on touches pages ahead")


def resident(memory: mmap.mmap, size: int) -> int:
    """Bytes of the mapping that have pages, as the kernel says."""
    pages = np.zeros(size // mmap.PAGESIZE, np.uint8)
    start = ctypes.c_void_p(np.frombuffer(memory, np.uint8).ctypes.data)
    assert ctypes.CDLL(None).mincore(start, ctypes.c_size_t(size), ctypes.c_void_p(pages.ctypes.data)) == 0
    return int((pages & 1).sum()) * mmap.PAGESIZE


def mapping(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


@linux
def test_so_much_is_touched_past_what_is_in_use() -> None:
    memory = mapping(64 * MIB)
    memory[:4] = b"kept"
    warming = Warming(memory, 8 * MIB)
    assert resident(memory, 64 * MIB) < MIB
    warming.need(100)
    warming.wait()
    assert 8 * MIB <= resident(memory, 64 * MIB) <= 10 * MIB
    warming.need(3 * MIB)  # more than half of it is left
    warming.wait()
    assert resident(memory, 64 * MIB) <= 10 * MIB
    warming.need(7 * MIB)
    warming.wait()
    assert 15 * MIB <= resident(memory, 64 * MIB) <= 17 * MIB
    assert memory[:4] == b"kept" and not any(memory[4 : 16 * MIB])


@linux
def test_the_end_is_the_end() -> None:
    memory = mapping(32 * MIB)
    warming = Warming(memory, 8 * MIB)
    for start in (31 * MIB, 32 * MIB):
        warming.need(start)
        warming.wait()
    assert MIB <= resident(memory, 32 * MIB) <= 3 * MIB


@linux
def test_little_memory_is_left_alone() -> None:
    memory = mapping(MIB)
    warming = Warming(memory, MIB)
    warming.need(100)
    warming.wait()
    assert resident(memory, MIB) == 0
