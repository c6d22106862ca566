"""The application: every path with what it does, behind the guard."""

from __future__ import annotations

import logging
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from fucina.server.failures import REQUEST_ID, ApiError
from fucina.server.guard import Guard, dialect_of
from fucina.server.paths import ENDPOINTS
from fucina.server.state import ServerState

_LOG = logging.getLogger("fucina.server")


def make_app(state: ServerState, lifespan: Lifespan[Starlette] | None = None) -> ASGIApp:
    """The ASGI application; `lifespan` runs around it."""
    app = Starlette(
        routes=[Route(one.path, one.handler(state), methods=[one.method]) for one in ENDPOINTS],
        exception_handlers={HTTPException: _not_found},
        lifespan=lifespan,
    )
    open_paths = [one.path for one in ENDPOINTS if one.is_open]
    return _Record(Guard(app, state.options, open_paths), state)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    message = f"{request.method} {path}: {error.detail}; /docs lists what there is"
    refusal = dialect_of(path).refuse(ApiError(error.status_code, message, code="not_found"))
    refusal.headers.update(error.headers or {})  # of 405: the methods that there are
    return refusal


class _Record:
    """Logs and counts each request: its path, status and time, and nothing of what it says."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app, self._state, self._n = app, state, 0
        self._paths = frozenset(one.path for one in ENDPOINTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on, and take note."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._n += 1
        request_id = f"req-{self._n}"
        REQUEST_ID.set(request_id)
        status, began = 499, time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # the second name is the one that Anthropic's clients read
                told = [(name, request_id.encode()) for name in (b"x-request-id", b"request-id")]
                message["headers"] = [*message["headers"], *told]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._state.metrics.requests.labels(path, str(status)).inc()
            seconds = round(time.perf_counter() - began, 3)
            told = {
                "request": request_id,
                "method": scope["method"],
                "path": path,
                "status": status,
                "seconds": seconds,
            }
            _LOG.info("%s %s %s: %d in %.3f s", *told.values(), extra={"fields": told})
