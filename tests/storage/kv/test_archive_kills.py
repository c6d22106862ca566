"""A process killed with SIGKILL at any moment leaves the state of a commit, and none before the last it was told of.

FUCINA_TEST_KILLS asks for more kills than the few that fit a quick run.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from fucina.storage.kv.archive.conversation_file import ConversationFile

CHILD = Path(__file__).with_name("kill_archive.py")
N_KILLS = int(os.environ.get("FUCINA_TEST_KILLS", "20"))


def test_sigkill_leaves_a_commit(tmp_path: Path) -> None:
    child = runpy.run_path(str(CHILD))
    rng = random.Random(N_KILLS)
    path = tmp_path / "talk"
    done: list[Any] = [[], []]
    n_done = n_pending = 0
    for kill in range(N_KILLS):
        if kill % 2:
            lines = _killed_in_sync(path, kill, rng.randrange(1, 9))
            assert lines[-1][0] == "n"
        else:
            n_told = rng.randrange(1, 10) if kill % 4 else None
            lines = _killed(path, kill, n_told, rng.uniform(0.0, 0.05 if n_told else 0.1))
        states = [json.loads(line.partition(" ")[2]) for line in lines]
        done = next((state for line, state in zip(lines[::-1], states[::-1], strict=True) if line[0] == "d"), done)
        coming = states[-1] if lines and lines[-1][0] == "n" else done
        file = ConversationFile(path, child["GEOMETRY"], child["IDENTITY"])
        assert child["is_right"](file)
        known = file.ids[: file.n_tokens]
        assert file.messages in (done[0], coming[0])
        assert known in (done[1][: len(known)], coming[1][: len(known)])
        if coming is done:
            assert file.ids == done[1]
        done = [file.messages, file.ids]
        file.close()
        n_done += len(lines) // 2
        n_pending += len(lines) % 2
    print(f"{N_KILLS} kills, {n_done} commits, {n_pending} kills in the middle of one")


def _killed_in_sync(path: Path, seed: int, n_syncs: int) -> list[str]:
    """What a process said that killed itself in the middle of its `n_syncs`-th sync after it had opened the file."""
    command = [sys.executable, str(CHILD), str(path), str(seed), str(n_syncs)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL
    return ran.stdout.removeprefix("start\nopen\n").splitlines(keepends=True)


def _killed(path: Path, seed: int, n_told: int | None, after_s: float) -> list[str]:
    """What a process said before it was killed, so long after it told of `n_told` changes, or after its start."""
    command = [sys.executable, str(CHILD), str(path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "start\n"
        told = ""
        if n_told is not None:
            assert process.stdout.readline() == "open\n"
            told = "".join(process.stdout.readline() for _ in range(2 * n_told))
        killer = threading.Timer(after_s, os.kill, (process.pid, signal.SIGKILL))
        killer.start()
        said = told + process.stdout.read().removeprefix("open\n")
        killer.join()
    return [line for line in said.splitlines(keepends=True) if line.endswith("\n")]
