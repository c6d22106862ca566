"""Server-sent events, as OpenAI's and Anthropic's interfaces stream them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import orjson

from fucina.server.endpoint import Dialect
from fucina.server.failures import ApiError
from fucina.server.stream import Farewell, Stream

#: What clients do not see.
COMMENT = b": still at it\n\n"
#: The end of OpenAI's streams.
DONE = b"data: [DONE]\n\n"


def frame(content: Any, event: str | None = None) -> bytes:
    """One event."""
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return name + b"data: " + orjson.dumps(content) + b"\n\n"


def event_stream(
    pieces: AsyncGenerator[bytes, None],
    dialect: Dialect,
    stall_s: float,
    *,
    event: str | None = None,
    last: bytes = b"",
    farewell: Farewell | None = None,
) -> Stream:
    """A response of events; a failure on the way is one more of them, named `event`, and then `last`.

    Or it is what `farewell` makes of it, where the dialect's usual failure will not do.
    """

    def told(error: ApiError) -> bytes:
        return frame(dialect.failure(error), event) + last

    return Stream(
        pieces,
        media_type="text/event-stream",
        refusal=dialect.refuse,
        farewell=farewell or told,
        stall_s=stall_s,
    )
