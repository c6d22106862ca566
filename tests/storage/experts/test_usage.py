"""The file of experts' uses: adds up, belongs to one model, and is whole or ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fucina.storage.experts.usage import ExpertUsageWarning, UsageFile

IDENTITY = bytes(range(32))
SIZES = (3, 2)
USES = [np.array([1, 2, 3], np.uint64), np.array([4, 2**40], np.uint64)]


def usage_file(*places: Path, identity: bytes = IDENTITY, sizes: tuple[int, ...] = SIZES) -> UsageFile:
    return UsageFile(places, identity, sizes)


def as_lists(file: UsageFile) -> list[list[int]] | None:
    found = file.read()
    return None if found is None else [[int(n) for n in counts] for counts in found]


def test_uses_add_up(tmp_path: Path) -> None:
    place = tmp_path / "new folder" / "model.experts"
    assert usage_file(place).read() is None
    assert usage_file(place).add(USES)
    assert as_lists(usage_file(place)) == [[1, 2, 3], [4, 2**40]]
    assert usage_file(place).add(USES)
    assert as_lists(usage_file(place)) == [[2, 4, 6], [8, 2**41]]
    assert [entry.name for entry in place.parent.iterdir()] == ["model.experts"]


@pytest.mark.parametrize("at", range(0, 8 + 4 + 32 + 2 * 4 + 5 * 8 + 16, 3))
def test_a_damaged_file_is_ignored_whole(tmp_path: Path, at: int) -> None:
    place = tmp_path / "model.experts"
    usage_file(place).add(USES)
    data = bytearray(place.read_bytes())
    data[at] ^= 0x40
    place.write_bytes(data)
    with pytest.warns(ExpertUsageWarning, match=r"model\.experts: not the uses of this model's experts, or damaged"):
        assert usage_file(place).read() is None


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: data[:0]])
def test_a_file_of_another_length_is_ignored(tmp_path: Path, change: object) -> None:
    place = tmp_path / "model.experts"
    usage_file(place).add(USES)
    place.write_bytes(change(place.read_bytes()))  # type: ignore[operator]
    with pytest.warns(ExpertUsageWarning):
        assert usage_file(place).read() is None
    assert usage_file(place).add(USES)  # and begun anew
    assert as_lists(usage_file(place)) == [[1, 2, 3], [4, 2**40]]


@pytest.mark.parametrize(("identity", "sizes"), [(bytes(32), SIZES), (IDENTITY, (2, 3)), (IDENTITY, (5,))])
def test_another_models_file_is_ignored(tmp_path: Path, identity: bytes, sizes: tuple[int, ...]) -> None:
    place = tmp_path / "model.experts"
    usage_file(place).add(USES)
    with pytest.warns(ExpertUsageWarning):
        assert usage_file(place, identity=identity, sizes=sizes).read() is None


def test_what_was_never_ours_is_not_replaced(tmp_path: Path) -> None:
    place, other = tmp_path / "model.experts", tmp_path / "home" / "x.experts"
    place.write_text("a list of people")
    assert usage_file(place, other).add(USES)
    assert place.read_text() == "a list of people"
    with pytest.warns(ExpertUsageWarning, match="remove the file"):
        assert as_lists(usage_file(place, other)) == [[1, 2, 3], [4, 2**40]]


def test_where_the_folder_cannot_be_written_the_next_place_is_used(tmp_path: Path) -> None:
    (tmp_path / "no folder").write_text("")
    place, other = tmp_path / "no folder" / "model.experts", tmp_path / "x.experts"
    assert usage_file(place, other).add(USES)
    assert as_lists(usage_file(place, other)) == [[1, 2, 3], [4, 2**40]]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "model.experts"
    usage_file(place).add(USES)
    program = (
        "import resource, signal, sys, warnings, numpy as np\n"
        "from pathlib import Path\n"
        "from fucina.storage.experts.usage import ExpertUsageWarning, UsageFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))\n"
        "warnings.simplefilter('error', ExpertUsageWarning)\n"
        f"file = UsageFile([Path({str(place)!r})], bytes(range(32)), (3, 2))\n"
        "try:\n"
        "    file.add([np.ones(3, np.uint64), np.ones(2, np.uint64)])\n"
        "except ExpertUsageWarning as warning:\n"
        "    sys.exit(7 if 'cannot be kept' in str(warning) else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7
    assert as_lists(usage_file(place)) == [[1, 2, 3], [4, 2**40]]
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.experts"]


def test_killed_while_writing_leaves_a_whole_file(tmp_path: Path) -> None:
    place = tmp_path / "model.experts"
    usage_file(place).add(USES)
    program = (
        "import numpy as np\n"
        "from pathlib import Path\n"
        "from fucina.storage.experts.usage import UsageFile\n"
        f"file = UsageFile([Path({str(place)!r})], bytes(range(32)), (3, 2))\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    file.add([np.array([1, 2, 3], np.uint64), np.array([4, 2**40], np.uint64)])\n"
    )
    for pause_s in (0.001, 0.004, 0.011):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(pause_s)
            os.kill(child.pid, signal.SIGKILL)
        found = as_lists(usage_file(place))
        assert found is not None
        times = found[0][0]
        assert found == [[times, 2 * times, 3 * times], [4 * times, 2**40 * times]]
