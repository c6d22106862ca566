"""Responses that grow: server-sent events and JSON lines, begun when there is something to say.

A failure before the first piece is still a plain error with its status. Who hangs up ends his answer at once; who does
not read has `stall_s` seconds to begin again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from math import inf
from time import monotonic
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fucina.server.failures import ApiError, as_api_error

#: Makes the last bytes of a stream that failed on the way.
Farewell = Callable[[ApiError], bytes]
#: Makes the response for a failure before the first byte.
Refusal = Callable[[ApiError], Response]


class Stream(Response):
    """A body whose pieces come from a generator, which is closed on every way out."""

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        *,
        media_type: str,
        refusal: Refusal,
        farewell: Farewell,
        stall_s: float,
    ) -> None:
        super().__init__(media_type=media_type, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._pieces, self._refusal, self._farewell = pieces, refusal, farewell
        self._stall_s, self._writing_since = stall_s, inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it all, unless the reader leaves or takes nothing any more."""
        sending = asyncio.ensure_future(self._send(scope, receive, send))
        leaving = asyncio.ensure_future(_departure(receive))
        try:
            while not (sending.done() or leaving.done() or self._is_stalled()):
                await asyncio.wait((sending, leaving), timeout=self._stall_s / 4, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await end_tasks(sending, leaving)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        async with aclosing(self._pieces) as pieces:
            try:
                async for piece in pieces:
                    if not begun:
                        begun = True
                        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    await self._write(send, piece)
            except Exception as error:
                failure = as_api_error(error)
                if not begun:
                    await self._refusal(failure)(scope, receive, send)
                    return
                await self._write(send, self._farewell(failure))
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send, piece: bytes) -> None:
        self._writing_since = monotonic()
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        self._writing_since = inf

    def _is_stalled(self) -> bool:
        return monotonic() - self._writing_since > self._stall_s


async def end_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they are gone."""
    for task in tasks:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _departure(receive: Receive) -> None:
    """Wait until the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(work: Coroutine[Any, Any, Response], receive: Receive) -> Response:
    """The response that `work` makes, which is cancelled if the client hangs up before."""
    making, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_departure(receive))
    try:
        await asyncio.wait((making, leaving), return_when=asyncio.FIRST_COMPLETED)
        return making.result() if making.done() else Response(status_code=499)
    finally:
        await end_tasks(making, leaving)
