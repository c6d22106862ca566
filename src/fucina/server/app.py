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

from fucina.server.endpoint import Endpoint
from fucina.server.failures import ApiError
from fucina.server.guard import Guard, dialect_of
from fucina.server.routes import chat, messages, page, plain, responses
from fucina.server.state import ServerState
from fucina.server.wire.chat import ChatRequest
from fucina.server.wire.errors import ANTHROPIC, OPENAI
from fucina.server.wire.messages import CountReply, CountRequest, MessagesRequest
from fucina.server.wire.messages_reply import MessageReply
from fucina.server.wire.responses import ResponsesRequest
from fucina.server.wire.responses_reply import ResponseReply

_LOG = logging.getLogger("fucina.server")

ENDPOINTS = (
    Endpoint(
        path="/v1/chat/completions",
        method="POST",
        summary="Answer a conversation (OpenAI)",
        dialect=OPENAI,
        work=chat.chat,
        body=ChatRequest,
        stream="text/event-stream",
    ),
    Endpoint(
        path="/v1/responses",
        method="POST",
        summary="Answer items (OpenAI)",
        dialect=OPENAI,
        work=responses.responses,
        body=ResponsesRequest,
        reply=ResponseReply,
        stream="text/event-stream",
    ),
    Endpoint(
        path="/v1/messages",
        method="POST",
        summary="Answer a conversation (Anthropic)",
        dialect=ANTHROPIC,
        work=messages.messages,
        body=MessagesRequest,
        reply=MessageReply,
        stream="text/event-stream",
    ),
    Endpoint(
        path="/v1/messages/count_tokens",
        method="POST",
        summary="Count the tokens of a conversation (Anthropic)",
        dialect=ANTHROPIC,
        work=messages.count_tokens,
        body=CountRequest,
        reply=CountReply,
    ),
    Endpoint(path="/v1/models", method="GET", summary="List the model (OpenAI)", dialect=OPENAI, work=plain.models),
    Endpoint(
        path="/v1/models/{model:path}", method="GET", summary="Tell of a model", dialect=OPENAI, work=plain.one_model
    ),
    Endpoint(
        path="/health",
        method="GET",
        summary="Whether answers can be had",
        dialect=OPENAI,
        work=plain.health,
        is_open=True,
    ),
    Endpoint(path="/live", method="GET", summary="Whether it runs", dialect=OPENAI, work=plain.alive, is_open=True),
    Endpoint(
        path="/metrics",
        method="GET",
        summary="Numbers for Prometheus",
        dialect=OPENAI,
        work=plain.metrics,
        media_type="text/plain",
    ),
    *page.ENDPOINTS,
)


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
    return dialect_of(path).refuse(ApiError(error.status_code, message, code="not_found"))


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
        scope.setdefault("state", {})["id"] = request_id
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
