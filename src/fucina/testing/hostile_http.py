"""Requests that a server has to survive, each with the statuses it may answer with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Any

from fucina.testing.raw_http import Reply, Wire, ask, connected, head, post

CHAT = "/v1/chat/completions"
#: What the server has to call its model.
MODEL = "scripted"
#: The connection was closed without an answer, or we closed it.
GONE = 0
#: Refused for what it asks.
REFUSED = frozenset((400, 404, 405, 413, 415, 422, 501))
#: Refused for what it asks, or answered all the same, or told to come back.
ANYHOW = REFUSED | {200, 429, 503, 504}

_DEEP = 100_000
_SLOW_S = 0.2
_FORM_DATA = {"content-type": "application/x-www-form-urlencoded"}
_TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)


@dataclass(frozen=True, slots=True)
class Attack:
    """A way to misbehave: gives the status it got. A status outside `allowed` is the server's fault."""

    name: str
    allowed: frozenset[int]
    act: Callable[[int, Random], Awaitable[int]]


def chat_body(content: str = "Tell me a story.", **fields: Any) -> dict[str, Any]:
    """A short chat, and what else is given."""
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 8} | fields


def _schema(schema: object) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


_OPENING = b'{"model": "scripted", "messages": [{"role": "user", "content": "'

#: Bodies that are no JSON, or no chat.
MALFORMED: Mapping[str, bytes] = {
    "empty": b"",
    "half": _OPENING,
    "not utf-8": _OPENING + b'\xff\xfe"}]}',
    "lone surrogate": _OPENING + b'\\ud800"}]}',
    "not a number": _OPENING + b'x"}], "temperature": NaN}',
    "a list": b"[]",
    "null": b"null",
    "deep lists": b"[" * _DEEP,
    "deep objects": b'{"a":' * _DEEP,
    "a deep schema": _OPENING
    + b'x"}], "response_format": '
    + b'{"type": "json_schema", "json_schema": {"name": "x", "schema": '
    + b'{"not":' * 5000
    + b"{}"
    + b"}" * 5003,
    "no messages": b'{"model": "scripted", "messages": []}',
    "half a megabyte of keys": b"{" + b",".join(b'"k%d": 1' % i for i in range(40_000)) + b"}",
}

#: Fields beside a chat that ask for what is wrong or cannot be.
ABSURD: Mapping[str, dict[str, Any]] = {
    "temperature": {"temperature": 1e308},
    "cold": {"temperature": -1},
    "top_k": {"top_k": -(10**9)},
    "top_p": {"top_p": 1e-300},
    "penalty": {"repetition_penalty": 1e300, "frequency_penalty": -1e300},
    "max_tokens": {"max_tokens": 10**40},
    "no tokens": {"max_tokens": -1},
    "n": {"n": 10**9},
    "seed": {"seed": 2**70},
    "stops": {"stop": ["x" * 1000] * 1000},
    "bias": {"logit_bias": {str(i): 1e300 for i in range(20_000)}},
    "top_logprobs": {"logprobs": True, "top_logprobs": 10**6},
    "types": {"messages": {"role": 1}, "stream": "perhaps"},
    "roles": {"messages": [{"role": "wizard", "content": "x"}]},
    "tools": {"tools": [{"type": "function", "function": {"name": "\0" * 500}}], "tool_choice": "required"},
    "many tools": {"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(2000)]},
    "schema type": _schema({"type": "bogus"}),
    "schema reference": _schema({"$ref": "http://localhost:1/schema.json"}),
    "schema circle": _schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
    "schema depth": _schema(_nested(60)),
    "schema enum": _schema({"enum": [f"{i:06}" for i in range(20_000)]}),
    "schema counts": _schema({"type": "string", "minLength": 10**9}),
    "schema patterns": _schema({"type": "string", "pattern": "(a|a)*b"}),
}

#: Patterns and grammars that cost the unwary their time or memory.
FORMS: Mapping[str, dict[str, Any]] = {
    "regex backtracks": {"regex": "(a*)*(a*)*b"},
    "regex counts": {"regex": "((a{1,1000}){1,1000}){1,1000}"},
    "regex alternates": {"regex": "(a|aa|aaa|aaaa)*" * 20},
    "regex states": {"regex": "(a|b)*a(a|b){200}"},
    "regex words": {"regex": r"(\w+\s?){1,500}"},
    "regex looks ahead": {"regex": "(?=a)(?!b)a"},
    "regex is none": {"regex": "(((("},
    "regex is long": {"regex": "a" * 200_000},
    "grammar turns left": {"lark": 'start: start start | "a"'},
    "grammar is ambiguous": {"lark": "start: e\ne: e e | e e e | /a/ | /a+/ | /[a-z]*/"},
    "grammar has no end": {"lark": "start: a\na: b\nb: a"},
    "grammar misses rules": {"lark": "start: nowhere"},
    "grammar imports": {"lark": "%import .secrets.passwd\nstart: passwd"},
    "grammar is none": {"grammar": "root ::= ((((("},
    "grammar nests": {"grammar": "root ::= " + "(" * 3000 + '"a"' + ")" * 3000},
    "grammar is long": {"lark": "start: a0\n" + "\n".join(f"a{i}: a{i + 1}" for i in range(5000)) + '\na5000: "x"'},
}

_PATHS = ("/", "/v1", "/v1/chat", "/v1/models/" + "x" * 5000, "/../../etc/passwd", "/%00", "/v1/chat/completions/")


def attacks(longest: int = 8) -> list[Attack]:
    """All of them; answers that are hung up on or read slowly are of `longest` tokens."""
    long = chat_body(max_tokens=longest, stream=True, ignore_eos=True)
    bodies = [
        *((f"malformed: {name}", body, REFUSED) for name, body in MALFORMED.items()),
        *((f"absurd: {name}", chat_body() | fields, ANYHOW) for name, fields in ABSURD.items()),
        *((f"form: {name}", chat_body() | fields, ANYHOW) for name, fields in FORMS.items()),
        ("a megabyte", chat_body("A" * (1 << 20)), REFUSED),
        ("too large", b" " * ((16 << 20) + 1), frozenset((413, GONE))),
    ]
    return [
        *(Attack(name, allowed, _sender(post(CHAT, body))) for name, body, allowed in bodies),
        Attack("unknown path", REFUSED | {200, 307}, _unknown_path),
        Attack("unknown method", REFUSED | {GONE}, _sender(head("BREW", CHAT, {}))),
        Attack("form data", REFUSED, _sender(post(CHAT, b"a=b", _FORM_DATA))),
        Attack("no HTTP", frozenset((400, GONE)), _sender(_TLS_HELLO)),
        Attack("many headers", ANYHOW | {431, GONE}, _sender(_many_headers())),
        Attack("long header", ANYHOW | {431, GONE}, _sender(head("GET", "/health", {"x-long": "a" * (1 << 20)}))),
        Attack("lying length", ANYHOW | {GONE}, _sender(head("POST", CHAT, {"content-length": "-5"}) + b"{}")),
        Attack("a body without end", frozenset((413, 400, GONE)), _endless_chunks),
        Attack("leaves at once", frozenset((GONE,)), _leaver(post(CHAT, chat_body(ignore_eos=True)))),
        Attack("leaves at once, streamed", frozenset((GONE,)), _leaver(post(CHAT, long))),
        Attack("leaves with half a request", frozenset((GONE,)), _leaver(post(CHAT, long)[:-20])),
        Attack("leaves in mid-stream", frozenset((GONE, 200, 429)), _middle_leaver(post(CHAT, long))),
        Attack("reads slowly", frozenset((200, 429)), _slow_reader(post(CHAT, long | {"logprobs": True}))),
        Attack("writes slowly", frozenset((GONE, 400, 408)), _slow_writer(post(CHAT, long))),
    ]


def _sender(request: bytes) -> Callable[[int, Random], Awaitable[int]]:
    async def act(port: int, _: Random) -> int:
        return (await ask(port, request)).status

    return act


async def _unknown_path(port: int, rng: Random) -> int:
    return (await ask(port, head(rng.choice(("GET", "POST", "PUT")), rng.choice(_PATHS), {}))).status


def _many_headers() -> bytes:
    return head("GET", "/health", {f"x-header-{i}": "a" * 50 for i in range(2000)})


async def _endless_chunks(port: int, _: Random) -> int:
    async with connected(port) as wire:
        reply = Reply(perf_counter())
        with suppress(OSError):  # it may be refused by closing
            await wire.send(head("POST", CHAT, {"transfer-encoding": "chunked"}))
            for _i in range(20):
                await wire.send(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
        return await _rest(wire, reply)


async def _rest(wire: Wire, reply: Reply) -> int:
    async for _ in wire.chunks(reply):
        pass
    return reply.status


def _leaver(request: bytes) -> Callable[[int, Random], Awaitable[int]]:
    async def act(port: int, rng: Random) -> int:
        async with connected(port) as wire:
            await wire.send(request)
            await asyncio.sleep(rng.random() * _SLOW_S)
            return GONE

    return act


def _middle_leaver(request: bytes) -> Callable[[int, Random], Awaitable[int]]:
    async def act(port: int, rng: Random) -> int:
        async with connected(port) as wire:
            await wire.send(request)
            reply, n_most = Reply(perf_counter()), rng.randint(1, 6)
            async for _ in wire.chunks(reply):
                if len(reply.pieces) >= n_most:
                    return GONE
            return reply.status

    return act


def _slow_reader(request: bytes) -> Callable[[int, Random], Awaitable[int]]:
    async def act(port: int, rng: Random) -> int:
        async with connected(port, limit=1024) as wire:
            await wire.send(request)
            reply = Reply(perf_counter())
            async for _ in wire.chunks(reply):
                await asyncio.sleep(rng.random() * _SLOW_S)
            return reply.status

    return act


def _slow_writer(request: bytes) -> Callable[[int, Random], Awaitable[int]]:
    async def act(port: int, rng: Random) -> int:
        async with connected(port) as wire:
            for i in range(rng.randint(5, 15)):
                await wire.send(request[i : i + 1])
                await asyncio.sleep(rng.random() * _SLOW_S)
            return GONE

    return act
