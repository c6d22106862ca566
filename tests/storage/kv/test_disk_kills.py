"""A process killed with SIGKILL at any moment leaves no wrong block and loses none that it was promised.

FUCINA_TEST_KILLS asks for more kills than the few that fit a quick run.
"""

from __future__ import annotations

import os
import random
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from fucina.storage.kv.disk.tier import DiskTier
from fucina.storage.kv.pool import KvPool

CHILD = Path(__file__).with_name("kill_disk.py")
N_KILLS = int(os.environ.get("FUCINA_TEST_KILLS", "12"))


def test_no_promise_is_broken_by_sigkill(tmp_path: Path) -> None:
    child = runpy.run_path(str(CHILD))
    rng = random.Random(N_KILLS)
    promised: list[int] = []
    slowest_s = 0.0
    for kill in range(N_KILLS):
        n_told = rng.randrange(1, 4) if kill % 4 else None
        fresh = _killed(tmp_path / "kv", kill, n_told, rng.uniform(0.0, 0.1 if n_told else 0.25))
        promised += fresh
        pool = KvPool(child["GEOMETRY"], 1)
        before = time.perf_counter()
        tier = DiskTier(tmp_path / "kv", pool, child["IDENTITY"], child["CAPACITY_BYTES"])
        slowest_s = max(slowest_s, time.perf_counter() - before)
        for number in [*fresh, *rng.sample(promised, min(len(promised), 50))]:
            _is_there(child, tier, pool, number)
        for number in range(kill * 100_000, kill * 100_000 + len(fresh) + 32):  # what was not promised: right or absent
            block = child["stored"](number, 0)
            if (found := tier.find(block.parent, block.tokens)) and found.name == block.name:
                assert not tier.fetch(block.name, block.tokens, 0) or child["got"](pool, 0) == child["content"](number)
        assert tier.close(120) and tier.counters.n_unanswered == 0
    tier = DiskTier(tmp_path / "kv", pool, child["IDENTITY"], child["CAPACITY_BYTES"])
    for number in promised:
        _is_there(child, tier, pool, number)
    assert tier.close(120)
    assert tier.n_segments_removed == 0
    print(f"{N_KILLS} kills, {len(promised)} promised blocks, slowest start {slowest_s * 1e3:.0f} ms")


def _is_there(child: dict[str, object], tier: DiskTier, pool: KvPool, number: int) -> None:
    block = child["stored"](number, 0)  # type: ignore[operator]
    found = tier.find(block.parent, block.tokens)
    assert found is not None and (found.name, found.tokens) == (block.name, block.tokens), number
    assert tier.fetch(block.name, block.tokens, 0), number
    assert child["got"](pool, 0) == child["content"](number)  # type: ignore[operator]


def _killed(directory: Path, seed: int, n_told: int | None, after_s: float) -> list[int]:
    """The blocks that a process was promised before it was killed.

    That is so long after it told of `n_told` promises, or after its start.
    """
    command = [sys.executable, str(CHILD), str(directory), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "start\n"
        told = ""
        if n_told is not None:
            assert process.stdout.readline() == "open\n"
            told = "".join(process.stdout.readline() for _ in range(n_told))
        killer = threading.Timer(after_s, os.kill, (process.pid, signal.SIGKILL))
        killer.start()
        said = told + process.stdout.read().removeprefix("open\n")
        killer.join()
    promised = []
    for line in said.splitlines(keepends=True):
        if line.endswith("\n"):
            _, first, count = line.split()
            promised += range(int(first), int(first) + int(count))
    return promised
