"""Who may ask: hosts, origins, keys, and how large a request may be. Pure ASGI, before anything is read.

A page on any site can make a browser send requests to this machine. Where nobody has to show a key, the Host header
must be a name of ours: else any page could ask through a name of its own that it lets point here (DNS rebinding).
Requests from pages of other origins are refused, except those that the options name, which may read the answers.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Collection
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fucina.server.endpoint import Dialect
from fucina.server.failures import ApiError
from fucina.server.options import ServerOptions
from fucina.server.wire.errors import ANTHROPIC, OLLAMA, OPENAI

_ALLOWED_HEADERS = "authorization, content-type, x-api-key, anthropic-version, anthropic-beta"


class Guard:
    """The outermost layer."""

    def __init__(self, app: ASGIApp, options: ServerOptions, open_paths: Collection[str]) -> None:
        """`open_paths` need no key."""
        self._app, self._options, self._open_paths = app, options, frozenset(open_paths)
        self._digests = [_digest(key) for key in options.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        try:
            self._check_host(headers.get("host", ""))
            allowed = self._check_origin(origin, headers.get("host", ""))
            if allowed is not None:
                send = _allowing(send, allowed)
                if scope["method"] == "OPTIONS":
                    await _preflight(send)
                    return
            scope.setdefault("state", {})["tenant"] = self._check_key(scope["path"], headers)
            receive = self._limited(receive, headers)
        except ApiError as error:
            await dialect_of(scope["path"]).refuse(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_host(self, host: str) -> None:
        """Raises ApiError for a name that is none of ours."""
        options = self._options
        if self._digests or "*" in options.hosts:
            return
        name = _host_name(host)
        if name == "localhost" or name == options.host or name in options.hosts or _is_address(name):
            return
        message = f"the host '{name}' is none of this server's: start it with --host-name {name} if it should be"
        raise ApiError(421, message, code="unknown_host")

    def _check_origin(self, origin: str | None, host: str) -> str | None:
        """The origin that may read the answer; None where the browser need not be told. Raises ApiError."""
        if origin is None:
            return None
        if "*" in self._options.origins or origin in self._options.origins:
            return origin
        if origin.partition("://")[2] == host:
            return None
        raise ApiError(
            403, f"pages of {origin} may not ask: start the server with --cors {origin} if they should", code="origin"
        )

    def _check_key(self, path: str, headers: Headers) -> str:
        """The tenant that a key stands for. Raises ApiError."""
        if not self._digests:
            return ""
        if path in self._open_paths:
            return ""
        given = headers.get("x-api-key")
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if given is None and scheme.lower() == "bearer":
            given = token.strip()
        digest = _digest(given or "")
        found = ""
        for known in self._digests:  # all of them, so that the time tells nothing
            if hmac.compare_digest(known, digest):
                found = known.hex()
        if given is None or not found:
            what = "no API key was sent" if given is None else "this API key is unknown"
            raise ApiError(
                401, f"{what}: send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'", code="invalid_api_key"
            )
        return found

    def _limited(self, receive: Receive, headers: Headers) -> Receive:
        """`receive`, that ends a body which is too large. Raises ApiError where the length is told before."""
        most = self._options.max_body
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > most:
            raise _too_large(most)
        n_read = 0

        async def limited() -> Message:
            nonlocal n_read
            message = await receive()
            n_read += len(message.get("body", b""))
            if n_read > most:
                raise _too_large(most)
            return message

        return limited


def dialect_of(path: str) -> Dialect:
    """How failures are told on a path, whether there is something or not."""
    if path.startswith("/v1/messages"):
        return ANTHROPIC
    return OLLAMA if path.startswith("/api/") else OPENAI


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the request has more than {most} bytes", code="request_too_large")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    """Whether a name is an IP address: nobody can make that point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _allowing(send: Send, origin: str) -> Send:
    async def allow(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers.add_vary_header("origin")
        await send(message)

    return allow


async def _preflight(send: Send) -> None:
    headers: list[tuple[bytes, bytes]] = [
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", _ALLOWED_HEADERS.encode()),
        (b"access-control-max-age", b"600"),
    ]
    start: dict[str, Any] = {"type": "http.response.start", "status": 204, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": b""})
