"""HTTP/1.1 with a bound on what comes before the body: bytes of a request's head, and seconds it may take.

uvicorn's faster parser has neither: a head that never ends would grow in memory, and a connection on which nothing is
said would stay for ever. Its other parser, which is used where this one is not installed, bounds the bytes.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

#: Bytes of a request's head: its first line and its headers.
MOST_HEAD = 1 << 16
#: Seconds from a connection, or from the first byte of a further request on it, to the end of the head.
HEAD_S = 20.0


def http_protocol() -> Any:
    """What uvicorn takes as `http`."""
    return _bounded() if find_spec("httptools") is not None else "h11"


def _bounded() -> type[asyncio.Protocol]:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class BoundedProtocol(_HeadBounds, HttpToolsProtocol):
        pass

    return BoundedProtocol


if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _Base
else:
    _Base = object


class _HeadBounds(_Base):
    """To be put before uvicorn's protocol."""

    _alarm: asyncio.TimerHandle | None = None
    #: Bytes of the head that is awaited, if one is, and how many were awaited so far.
    _n_head, _awaits_head, _nth_head = 0, False, 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._await_head()
        self._set_alarm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_alarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, but never more of a head than it may have, however many come at once."""
        while data and not self.transport.is_closing():
            nth = self._nth_head
            n_taken = MOST_HEAD - self._n_head if self._awaits_head else len(data)
            taken, data = data[:n_taken], data[n_taken:]
            super().data_received(taken)
            if self._awaits_head and self._nth_head == nth:
                self._n_head += len(taken)
                if self._n_head == MOST_HEAD:
                    self._refuse(b"431 Request Header Fields Too Large", b"the head of a request has 64 KiB at most")

    def on_message_begin(self) -> None:
        """Begin to wait for the end of a further request's head."""
        super().on_message_begin()
        if self._alarm is None:
            self._set_alarm()

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self._awaits_head, self._n_head = False, 0
        self._stop_alarm()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """What comes next is a head."""
        super().on_message_complete()
        self._await_head()

    def _await_head(self) -> None:
        self._n_head, self._awaits_head = 0, True
        self._nth_head += 1

    def _set_alarm(self) -> None:
        self._alarm = self.loop.call_later(HEAD_S, self._give_up)

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _give_up(self) -> None:
        """Close; who has begun a request is told why."""
        if self._n_head:
            self._refuse(b"408 Request Timeout", b"the head of a request has to come within 20 s")
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: bytes, message: bytes) -> None:
        if self.transport.is_closing():
            return
        head = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(message)) + message)
        self.transport.close()
