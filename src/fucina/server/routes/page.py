"""GET / and its parts: a chat page, made of a few static files of this package.

It is open to those without a key, who can only look at it: what it asks for needs one. Whatever a model says, the page
shows as text, and the policy below keeps a browser from doing anything else with it: nothing is fetched from or sent to
elsewhere, no script or style stands within the page, and no string becomes markup (trusted types).
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files

from starlette.responses import Response

from fucina.server.endpoint import Call, Endpoint
from fucina.server.wire.errors import OPENAI

#: What a browser may do with the page (Content Security Policy Level 3, Trusted Types).
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # kept, but asked for each time: a new version shows at once, an old one costs a few bytes
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}
_MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the page, with the tag that changes when it does."""

    path: str
    media_type: str
    content: bytes
    packed: bytes
    tag: str

    @classmethod
    def read(cls, path: str, name: str) -> Asset:
        """The file `name` of the package's folder ui, served at `path`."""
        content = (files("fucina.server") / "ui" / name).read_bytes()
        tag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'
        return cls(path, _MEDIA_TYPES[name.rpartition(".")[2]], content, gzip.compress(content, mtime=0), tag)

    def response(self, known: str, encodings: str) -> Response:
        """The file, packed if Accept-Encoding, `encodings`, has gzip; 304 if If-None-Match, `known`, has its tag."""
        headers = _HEADERS | {"etag": self.tag}
        if self.tag in [tag.strip() for tag in known.split(",")]:
            return Response(status_code=304, headers=headers)
        if "gzip" in [name.strip() for name in encodings.split(",")]:
            return Response(self.packed, media_type=self.media_type, headers=headers | {"content-encoding": "gzip"})
        return Response(self.content, media_type=self.media_type, headers=headers)


def _work(asset: Asset) -> Callable[[Call], Awaitable[Response]]:
    async def work(call: Call) -> Response:
        headers = call.request.headers
        return asset.response(headers.get("if-none-match", ""), headers.get("accept-encoding", ""))

    return work


def _endpoint(path: str, name: str, summary: str) -> Endpoint:
    asset = Asset.read(path, name)
    return Endpoint(
        path=path,
        method="GET",
        summary=summary,
        dialect=OPENAI,
        work=_work(asset),
        media_type=asset.media_type,
        is_open=True,
    )


#: The page and its parts.
ENDPOINTS = (
    _endpoint("/", "index.html", "Chat in a browser"),
    *(
        _endpoint(f"/ui/{name}", name, "A part of the chat page")
        for name in (
            "app.js",
            "client.js",
            "markdown.js",
            "nodes.js",
            "settings.js",
            "turns.js",
            "style.css",
            "icon.svg",
        )
    ),
)
