"""What the kernel is told of a mapped file: which parts will be read, which never again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fucina.storage.mapping import expect_views, forget_pages, map_file

N_BYTES = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(np.random.default_rng(4).bytes(N_BYTES))
    return path


def mapping(path: Path) -> dict[str, str]:
    """What the kernel says of this process's mapping of the file."""
    if not Path("/proc/self/smaps").exists():
        pytest.skip("only Linux tells")
    _, _, after = Path("/proc/self/smaps").read_text().partition(f"{path.resolve()}\n")
    fields = (line.partition(":") for line in after.splitlines()[:30])
    found: dict[str, str] = {}
    for key, _, value in fields:
        found.setdefault(key, value.strip())
    return found


def test_forgotten_pages_leave_memory_and_are_read_again(file: Path) -> None:
    view = map_file(file)
    total = int(view.sum())
    assert mapping(file)["Rss"] == f"{N_BYTES // 1024} kB"
    forget_pages(view[100:-100])
    assert mapping(file)["Rss"] == "8 kB"  # the first and the last page are not wholly inside
    assert int(view.sum()) == total


def test_expected_views_are_read_without_what_lies_around(file: Path) -> None:
    view = map_file(file)
    assert "rr" not in mapping(file)["VmFlags"].split()
    expect_views([view[5000:9000], view[:0], np.zeros(4, np.uint8)])
    assert "rr" in mapping(file)["VmFlags"].split()  # random reads: none ahead
    assert view.tobytes() == file.read_bytes()
