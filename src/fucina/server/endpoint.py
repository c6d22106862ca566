"""One path of the server: what it takes, what it gives, and how its dialect tells of failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from fucina.server.bodies import read_body
from fucina.server.failures import ApiError, as_api_error
from fucina.server.state import ServerState
from fucina.server.stream import unless_gone


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one vendor's interface tells of failures: the body, and its type for the documentation."""

    name: str
    failure: Callable[[ApiError], dict[str, Any]]
    model: type[BaseModel]

    def refuse(self, error: ApiError) -> Response:
        """The whole response of a request that gets no answer."""
        headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        if error.status == 408:  # what is still to come of the request is not waited for
            headers["connection"] = "close"
        return json_response(self.failure(error), status=error.status, headers=headers)


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its body read and checked. `tenant` is who asks: nothing kept is shared with other tenants."""

    state: ServerState
    request: Request
    body: Any
    tenant: str

    def salt(self, own: str | None) -> str:
        """Whom an answer may share what is kept with: the same tenant, who may tell his own clients apart."""
        return f"{self.tenant}/{own}" if self.tenant or own else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One path and method. `body` and `reply` are their types, `stream` the media type where answers can grow.

    `example` is a body that shows what it is for; `is_answer` tells whether it waits for the model to
    compute, `needs_model` whether it is of no use before the model is loaded.
    `work` answers while the client waits, and is given up when he leaves.
    """

    path: str
    method: Literal["GET", "POST"]
    summary: str
    dialect: Dialect
    work: Callable[[Call], Awaitable[Response]]
    body: type[BaseModel] | None = None
    reply: type[BaseModel] | None = None
    stream: str | None = None
    media_type: str = "application/json"
    example: Mapping[str, Any] | None = field(default=None, hash=False)
    is_answer: bool = False
    needs_model: bool = True
    is_open: bool = field(default=False)  # to those without a key

    def handler(self, state: ServerState) -> Callable[[Request], Awaitable[Response]]:
        """What Starlette calls."""

        async def handle(request: Request) -> Response:
            try:
                body = None if self.body is None else await read_body(request, self.body, state.options.stall_s)
                call = Call(state, request, body, getattr(request.state, "tenant", ""))
                return await unless_gone(self._work(call), request.receive)
            except ClientDisconnect:
                return Response(status_code=499)
            except HTTPException as error:
                return self.dialect.refuse(ApiError(error.status_code, error.detail))
            except Exception as error:
                return self.dialect.refuse(as_api_error(error))

        return handle

    async def _work(self, call: Call) -> Response:
        return await self.work(call)


def json_response(content: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON, quickly."""
    return Response(orjson.dumps(content), status_code=status, media_type="application/json", headers=headers)
