"""Many clients at once, most of them hostile: who asks well is answered, and everything is given back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic, perf_counter, sleep
from typing import Any

import httpx2
import pytest

from fucina.server import protocol
from fucina.testing.hostile_http import CHAT, Attack, attacks, chat_body
from fucina.testing.raw_http import Reply, ask, connected, head, post

#: What this process has open, where the system tells.
FILES = Path("/proc/self/fd")
CLIENTS, SECONDS = 12, 5.0


def letters(prefix: Sequence[int]) -> int:
    return 97 + len(prefix) % 26


async def load(port: int, wanted: dict[int, str], wrong: list[str]) -> int:
    """The number of attacks that were made; each of them at least once."""
    left, end = attacks(longest=60), monotonic() + SECONDS
    n_attacks = len(left)

    async def attack(one: Attack, rng: Random) -> None:
        status = await asyncio.wait_for(one.act(port, rng), 240)
        if status not in one.allowed:
            wrong.append(f"{one.name}: {status}")

    async def client(rng: Random) -> None:
        while left or monotonic() < end:
            if left and rng.random() < 0.7:
                await attack(left.pop(), rng)
            else:
                await ask_well(rng.choice(list(wanted)), rng.random() < 0.5)

    async def ask_well(n_tokens: int, streams: bool) -> None:
        body = chat_body("hi", max_tokens=n_tokens, temperature=0, ignore_eos=True, stream=streams)
        reply = await asyncio.wait_for(ask(port, post(CHAT, body)), 240)
        if reply.status != 429 and (reply.status, said(reply, streams)) != (200, wanted[n_tokens]):
            wrong.append(f"well-formed: {reply.status} {reply.body!r}")

    await asyncio.gather(*(client(Random(seed)) for seed in range(CLIENTS)))
    return n_attacks - len(left)


def said(reply: Reply, streams: bool) -> str:
    if not streams:
        return str(reply.json()["choices"][0]["message"]["content"])
    deltas = [choice["delta"] for _, event in reply.events() for choice in event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def eventually(holds: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = monotonic() + seconds
    while not (now := holds()) and monotonic() < end:
        sleep(0.02)
    return now


def n_files() -> int:
    return len(list(FILES.iterdir())) if FILES.exists() else 0


def test_nobody_loses_by_what_others_do(served: Callable[..., Any]) -> None:
    server = served(letters, context=2048, parallel=4, queue=6)
    port = int(server.address.rpartition(":")[2])
    model, pool = server.state.loaded.model, server.scripted.kv_pool
    wanted: dict[int, str] = {}
    for n_tokens in (1, 7, 40):
        reply = httpx2.post(f"{server.address}{CHAT}", json=chat_body("hi", max_tokens=n_tokens, ignore_eos=True))
        wanted[n_tokens] = reply.json()["choices"][0]["message"]["content"]
        assert len(wanted[n_tokens]) == n_tokens
    wrong: list[str] = []
    asyncio.run(load(port, wanted, wrong))  # threads and caches that stay are there after this
    assert eventually(lambda: server.state.n_live == 0)
    before_files, before_threads = n_files(), threading.active_count()
    n_attacks = asyncio.run(load(port, wanted, wrong))
    assert n_attacks == len(attacks())
    assert wrong == []
    assert eventually(lambda: server.state.n_live == 0)
    assert eventually(lambda: n_files() <= before_files and threading.active_count() <= before_threads)
    model.forget_prefixes()
    assert pool.n_free == pool.capacity
    assert model.counters.failed_passes == 0
    assert httpx2.get(f"{server.address}/health").status_code == 200


@pytest.mark.parametrize("n_pieces", [1, 7])
@pytest.mark.parametrize("before", [0, 1], ids=["first", "further"])
def test_a_head_that_is_too_long_is_refused(served: Callable[..., Any], n_pieces: int, before: int) -> None:
    port = int(served(letters).address.rpartition(":")[2])
    longest = head("GET", "/health", {"x": ""})
    longest = longest.replace(b"x: ", b"x: " + b"a" * (protocol.MOST_HEAD - len(longest)))

    async def told(request: bytes) -> int:
        async with connected(port) as wire:
            reply = Reply(perf_counter())
            for _ in range(before):
                await wire.send(head("GET", "/health", {"connection": "keep-alive"}))
                assert [chunk async for chunk in wire.chunks(reply)] == [b'{"status":"ok"}']
            with suppress(OSError):
                for at in range(0, len(request), size := -(-len(request) // n_pieces)):
                    await wire.send(request[at : at + size])
            reply.status = 0
            async for _ in wire.chunks(reply):
                pass
            return reply.status

    assert asyncio.run(told(longest)) == 200
    # The system may throw an answer away where bytes that nobody reads come behind it.
    assert asyncio.run(told(longest.replace(b"x: ", b"x: a"))) in (431, 0)


def test_a_connection_that_says_nothing_is_closed(served: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    port = int(served(letters).address.rpartition(":")[2])

    async def wait(sent: bytes) -> Reply:
        async with connected(port) as wire:
            reply = Reply(perf_counter())
            await wire.send(sent)
            async for _ in wire.chunks(reply):
                pass
            assert await wire.reader.read() == b""
            return reply

    assert asyncio.run(asyncio.wait_for(wait(b""), 120)).status == 0
    assert asyncio.run(asyncio.wait_for(wait(b"GET /hea"), 120)).status == 408


def test_a_body_that_does_not_come_is_refused(served: Callable[..., Any]) -> None:
    port = int(served(letters, stall_s=0.2).address.rpartition(":")[2])
    request = post(CHAT, chat_body())
    reply = asyncio.run(asyncio.wait_for(ask(port, request[:-5]), 120))
    assert (reply.status, reply.json()["error"]["code"]) == (408, "request_timeout")
    assert reply.headers["connection"] == "close"


def test_bodies_of_very_many_values_are_refused_at_once(served: Callable[..., Any]) -> None:
    port = int(served(letters).address.rpartition(":")[2])
    keys = b"{" + b",".join(b'"k%d":1' % i for i in range(20_000)) + b"}"
    assert "20002 things are wrong" in asyncio.run(ask(port, post(CHAT, keys))).json()["error"]["message"]
    many = b'{"model": "scripted", "messages": [' + b",".join([b"1"] * 600_000) + b"]}"
    assert asyncio.run(ask(port, post(CHAT, many))).status == 413
    commas = chat_body("," * 600_000)  # in a text they are no values
    assert asyncio.run(ask(port, post(CHAT, commas))).json()["error"]["code"] == "context_length_exceeded"
