"""Bodies of requests: they come in time, hold no more than can be checked quickly, and are what a route takes."""

from __future__ import annotations

import asyncio
import re

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from fucina.server.failures import ApiError, invalid

# Bodies from so many bytes on are checked beside the event loop.
_LARGE = 1 << 16
#: Values in a body. A prompt of token ids has one a token; a million of them would take seconds to check.
MOST_VALUES = 1 << 19
# Text in quotes, also where the last quote is missing.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\(?:.|\Z))*+(?:"|\Z)', re.DOTALL)


async def read_body(request: Request, body: type[BaseModel], patience_s: float) -> BaseModel:
    """Read and check a body. Raises ApiError and ClientDisconnect."""
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json":
        # what a page elsewhere can send without asking first (a form, plain text) is no request of a client's
        raise ApiError(415, f"content-type '{content_type}': send application/json", code="unsupported_media_type")
    try:
        async with asyncio.timeout(patience_s):
            data = await request.body()
    except TimeoutError as error:
        message = f"the body has to come within {patience_s:g} s"
        raise ApiError(408, message, code="request_timeout") from error
    return _checked(body, data) if len(data) < _LARGE else await asyncio.to_thread(_checked, body, data)


def _checked(body: type[BaseModel], data: bytes) -> BaseModel:
    """What the bytes say. Raises ApiError."""
    if data.count(b",") >= MOST_VALUES and _TEXT.sub(b"", data).count(b",") >= MOST_VALUES:
        raise ApiError(413, f"the body has more than {MOST_VALUES} values", code="request_too_large")
    try:
        return body.model_validate_json(data)
    except ValidationError as error:
        raise invalid(error, body) from None  # what it holds of the body is let go here
