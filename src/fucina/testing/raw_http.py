"""A client that sees when each piece of an answer came, and can misbehave: HTTP over a plain socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

# Of the answer's head and of each of its chunks.
_MOST_LINE = 1 << 20


@dataclass(slots=True)
class Reply:
    """What came back. `pieces` are the chunks of its body, or all of it as one, with the second each came at.

    `status` is 0 where the server closed the connection without a word.
    """

    sent_s: float
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(piece for _, piece in self.pieces)

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def events(self) -> list[tuple[float, Any]]:
        """Its server-sent events that are JSON, each with the second its piece came at."""
        return [
            (came_s, json.loads(line[6:]))
            for came_s, piece in self.pieces
            for line in piece.split(b"\n")
            if line.startswith(b"data: {")
        ]


def post(path: str, body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """A request with a JSON body, or with these bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head("POST", path, {"content-length": str(len(data)), **(headers or {})}) + data


def head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """The head of a request after which the connection is closed."""
    given = {"host": "localhost", "content-type": "application/json", "connection": "close", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


@dataclass(slots=True)
class Wire:
    """A connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Send bytes. Raises OSError where the server has closed."""
        self.writer.write(data)
        await self.writer.drain()

    async def chunks(self, reply: Reply) -> AsyncIterator[bytes]:
        """The answer's pieces, noted in `reply` too; no more where the server closes."""
        try:
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            reply.status = int(lines[0].split(" ")[1])
            reply.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            is_chunked = reply.headers.get("transfer-encoding") == "chunked"
            size = int(reply.headers.get("content-length", 0))
            while is_chunked or size:
                if is_chunked:
                    size = int(await self.reader.readuntil(b"\r\n"), 16)
                piece = await self.reader.readexactly(size)
                if is_chunked:
                    await self.reader.readexactly(2)
                if not size:
                    return
                reply.pieces.append((perf_counter(), piece))
                yield piece
                size = 0
        except (OSError, asyncio.IncompleteReadError):
            return


@asynccontextmanager
async def connected(port: int, *, limit: int = _MOST_LINE) -> AsyncIterator[Wire]:
    """A connection to this machine, which is reset on the way out. Raises OSError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


async def ask(port: int, request: bytes) -> Reply:
    """Send a request and wait for all of the answer. Raises OSError where there is no connection to be had."""
    async with connected(port) as wire:
        reply = Reply(perf_counter())
        with suppress(OSError):  # who is refused on the way may still be told why
            await wire.send(request)
        async for _ in wire.chunks(reply):
            pass
        return reply
