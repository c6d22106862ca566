"""POST /v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence

from starlette.responses import Response

from fucina.engine.embedding import Embedded
from fucina.server.endpoint import Call, json_response
from fucina.server.vectors import vectors
from fucina.server.wire.completions import prompts_of
from fucina.server.wire.embeddings import EmbeddingRequest


async def embed(call: Call) -> Response:
    """Make a vector of each input."""
    body: EmbeddingRequest = call.body
    loaded = call.state.require(body.model)
    found = await vectors(call.state, prompts_of(body.input), body.dimensions)
    return await asyncio.to_thread(_reply, loaded.name, found, is_base64=body.encoding_format == "base64")


def _reply(model: str, found: Sequence[Embedded], *, is_base64: bool) -> Response:
    if is_base64:
        rows: list[object] = [base64.b64encode(one.vector.astype("<f4").tobytes()).decode() for one in found]
    else:
        rows = [one.vector.tolist() for one in found]
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    n = sum(one.prompt_tokens for one in found)
    usage = {"prompt_tokens": n, "total_tokens": n}
    return json_response({"object": "list", "data": data, "model": model, "usage": usage})
