"""Streams of JSON lines, as Ollama's interface has them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import orjson

from fucina.server.endpoint import Dialect
from fucina.server.failures import ApiError
from fucina.server.stream import Stream

#: What such a stream is.
NDJSON = "application/x-ndjson"


def line(content: Any) -> bytes:
    """One line."""
    return orjson.dumps(content) + b"\n"


def line_stream(pieces: AsyncGenerator[bytes, None], dialect: Dialect, stall_s: float) -> Stream:
    """A response of lines; a failure on the way is the last of them."""

    def farewell(error: ApiError) -> bytes:
        return line(dialect.failure(error))

    return Stream(pieces, media_type=NDJSON, refusal=dialect.refuse, farewell=farewell, stall_s=stall_s)
