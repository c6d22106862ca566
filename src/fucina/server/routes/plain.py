"""Paths that ask for no answer of the model: health, models and metrics."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from fucina.server.endpoint import Call, json_response
from fucina.server.metrics import CONTENT_TYPE
from fucina.server.state import Loaded


async def health(call: Call) -> Response:
    """Tell whether answers can be had: 200, or 503 while loading, after a failure and before the end."""
    call.state.require()
    return json_response({"status": "ok"})


async def alive(call: Call) -> Response:
    """Tell that the process runs, whatever else."""
    return json_response({"status": "alive", "draining": call.state.draining})


async def models(call: Call) -> Response:
    """List the model."""
    loaded = call.state.require()
    return json_response({"object": "list", "data": [_entry(loaded, name) for name in loaded.names]})


async def one_model(call: Call) -> Response:
    """Tell of one model."""
    name = call.request.path_params["model"]
    return json_response(_entry(call.state.require(name), name))


def _entry(loaded: Loaded, name: str) -> dict[str, object]:
    left_out = loaded.model.experts_left_out
    lossy = {} if left_out is None else {"lossy": {"moe_expert_top_p": left_out.top_p}}
    return {
        "id": name,
        "object": "model",
        "created": loaded.created,
        "owned_by": "fucina",
        "context_length": loaded.model.context,
        "max_model_len": loaded.model.context,
        **lossy,
    }


async def metrics(call: Call) -> Response:
    """Numbers for Prometheus."""
    text = await asyncio.to_thread(call.state.metrics.text)
    return Response(text, headers={"content-type": CONTENT_TYPE})
