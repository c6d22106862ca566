"""Many short requests, some of them cancelled, leave blocks, threads and memory where they were.

`--requests N` runs so many instead of a few hundred.
"""

from __future__ import annotations

import gc
import random
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from fucina.decoding.params import SamplingParams
from fucina.engine.assemble import load
from fucina.engine.engine import Engine
from fucina.engine.request import Request
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel
from fucina.testing.tiny_gguf import tiny_model

#: What Python's own caches may grow by; a request that leaked but its tokens would take more.
SLACK_BYTES = 64 << 10


def traffic(engine: Engine, n: int, rng: random.Random) -> None:
    """So many requests, at most eight at once, a quarter of which leave early."""
    alive: list[int] = []
    for n_sent in range(n):
        deadline = rng.choice((None, None, 3600.0, 1e-6))  # never, or as soon as somebody looks
        params = SamplingParams(max_tokens=rng.choice((1, 2, 4)), temperature=rng.choice((0.0, 1.0)), seed=1)
        prompt = [rng.randrange(200)] * rng.choice((1, 20, 70))
        request = Request(prompt_ids=prompt, params=params, priority=rng.randrange(2), deadline_s=deadline)
        alive.append(engine.submit(request))
        if rng.random() < 0.25:
            engine.cancel(rng.choice(alive))
        if len(alive) >= 8:
            for _ in range(rng.randrange(6)):
                engine.step()
            alive = alive[rng.randrange(8) :]
        if n_sent % 100 == 0:
            list(engine.run())  # or ever more would wait
    list(engine.run())


def n_files() -> int:
    """Open files of this process; 0 where the system does not tell."""
    told = Path("/proc/self/fd")
    return len(list(told.iterdir())) if told.exists() else 0


def counted(run: Callable[[], None]) -> int:
    """Bytes that Python holds more after a run than before it."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    run()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def test_nothing_stays_behind(request: pytest.FixtureRequest) -> None:
    n = request.config.getoption("--requests") or 300
    model = ScriptedModel(kv_blocks=10)
    engine = Engine(model, ByteTokenizer())
    n_threads = threading.active_count()
    tracemalloc.start()
    try:
        traffic(engine, 300, random.Random(0))  # fills the caches
        engine.prefixes.clear()
        grown = counted(lambda: (traffic(engine, n, random.Random(1)), engine.prefixes.clear())[0])
    finally:
        tracemalloc.stop()
    print(f"{n} requests: {grown} bytes, {engine.counters.finished}")
    assert grown < SLACK_BYTES
    assert model.kv_pool.n_free == model.kv_pool.capacity
    assert engine.prefixes.n_blocks == 0
    assert threading.active_count() <= n_threads
    assert engine.counters.finished["cancelled"] > n / 10
    assert engine.counters.requests == sum(engine.counters.finished.values()) == n + 300


def test_streams_left_half_read_leave_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    n = (request.config.getoption("--requests") or 300) // 3
    rng = random.Random(2)
    with load(tiny_model(tmp_path / "tiny.gguf", "llama"), threads=1, speculation=False) as model:

        def half_read() -> None:
            for _ in range(n):
                events = model.stream([rng.randrange(3, 200)] * rng.choice((3, 70)), SamplingParams(max_tokens=3))
                for _ in range(rng.randrange(4)):
                    next(events, None)
                events.close()  # type: ignore[attr-defined]

        half_read()
        n_threads, n_opened = threading.active_count(), n_files()
        tracemalloc.start()
        try:
            half_read()
            model.forget_prefixes()
            grown = counted(lambda: (half_read(), model.forget_prefixes())[0])
        finally:
            tracemalloc.stop()
        print(f"{n} streams: {grown} bytes")
        assert grown < SLACK_BYTES
        assert threading.active_count() <= n_threads
        assert n_files() <= n_opened  # what earlier tests left may be collected meanwhile
