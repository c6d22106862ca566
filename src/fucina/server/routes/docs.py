"""GET /openapi.json and /docs: what there is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache, partial

import orjson
from starlette.responses import Response

from fucina.server.docs_page import page
from fucina.server.endpoint import Call, Endpoint
from fucina.server.openapi import document
from fucina.server.wire.errors import OPENAI

# The page needs nothing but itself.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def described(endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """The paths that describe these and themselves."""
    docs = _Docs(endpoints)
    return docs.endpoints


class _Docs:
    """Writes the document and the page when they are first asked for."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        made = partial(Endpoint, method="GET", dialect=OPENAI, is_open=True, needs_model=False)
        self.endpoints: tuple[Endpoint, ...] = (
            made(path="/openapi.json", summary="This interface as an OpenAPI document", work=self.openapi),
            made(path="/docs", summary="This interface, to be read", work=self.docs, media_type="text/html"),
        )
        self._all = (*endpoints, *self.endpoints)
        self._written = cache(self._write)
        self._page = cache(lambda: page(endpoints).encode())

    async def openapi(self, call: Call) -> Response:
        """The document. Who needs no key is told the names of the models, too."""
        loaded = call.state.loaded
        names = loaded.names if loaded is not None and not call.state.options.api_keys else ()
        return Response(await asyncio.to_thread(self._written, names), media_type="application/json")

    async def docs(self, _: Call) -> Response:
        """The page."""
        content = await asyncio.to_thread(self._page)
        return Response(content, headers={"content-security-policy": _POLICY}, media_type="text/html")

    def _write(self, names: tuple[str, ...]) -> bytes:
        return orjson.dumps(document(self._all, names))
