"""GET /api/version, /api/tags and /api/ps, POST /api/show and /api/embed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from starlette.responses import Response

import fucina
from fucina.engine.embedding import Embedded
from fucina.engine.model import Model
from fucina.server.endpoint import Call, json_response
from fucina.server.failures import ApiError
from fucina.server.moments import moment, nanoseconds
from fucina.server.state import Loaded
from fucina.server.vectors import vectors
from fucina.server.wire.ollama import EmbedRequest, ShowRequest

# A model that is served stays loaded.
_NEVER = "9999-12-31T23:59:59Z"


async def version(_: Call) -> Response:
    """Tell the server's version."""
    return json_response({"version": fucina.__version__})


async def tags(call: Call) -> Response:
    """List the model, by each of its names."""
    loaded = call.state.require()
    return json_response(
        {"models": [{**_listed(loaded, name), "modified_at": _modified(loaded)} for name in loaded.names]}
    )


async def running(call: Call) -> Response:
    """List the model: it is loaded."""
    loaded = call.state.require()
    told = {"expires_at": _NEVER, "size_vram": 0, "context_length": loaded.model.context}
    return json_response({"models": [{**_listed(loaded, name), **told} for name in loaded.names]})


async def show(call: Call) -> Response:
    """Tell of the model."""
    body: ShowRequest = call.body
    name = body.model if body.model is not None else body.name
    if name is None:
        raise ApiError(400, "the field 'model' is missing", code="missing_field", param="model")
    loaded = call.state.require(name)
    facts, defaults = loaded.facts, call.state.options.defaults
    thinks = loaded.model.constraints.thinking(()) is not None
    reply = {
        "modelfile": f"FROM {loaded.path.name}\n",
        "parameters": f"temperature {defaults.temperature:g}\ntop_p {defaults.top_p:g}\nmin_p {defaults.min_p:g}",
        "template": facts.template or "",
        "details": _details(loaded),
        "model_info": {
            "general.architecture": facts.family,
            "general.parameter_count": facts.n_parameters,
            f"{facts.family}.context_length": loaded.model.context,
            **_lossy(loaded),
        },
        "capabilities": ["completion", "tools", "embedding", *(["thinking"] if thinks else [])],
        "modified_at": _modified(loaded),
    }
    return json_response(reply)


def _lossy(loaded: Loaded) -> dict[str, float]:
    """What the server was told to compute otherwise than the model means."""
    left_out = loaded.model.experts_left_out
    return {} if left_out is None else {"fucina.lossy.moe_expert_top_p": left_out.top_p}


async def embed(call: Call) -> Response:
    """Make a vector of each input."""
    body: EmbedRequest = call.body
    began = time.perf_counter()
    model = call.state.require(body.model).model
    texts = [body.input] if isinstance(body.input, str) else body.input
    inputs: Sequence[Any] = texts
    if body.truncate is not False:
        inputs = await asyncio.to_thread(partial(_cut, model, texts))
    found = await vectors(call.state, inputs, body.dimensions)
    return await asyncio.to_thread(_embedded, body.model, found, began)


def _embedded(name: str, found: Sequence[Embedded], began: float) -> Response:
    return json_response(
        {
            "model": name,
            "embeddings": [one.vector.tolist() for one in found],
            "total_duration": nanoseconds(time.perf_counter() - began),
            "load_duration": 0,
            "prompt_eval_count": sum(one.prompt_tokens for one in found),
        }
    )


def _cut(model: Model, texts: Sequence[str]) -> list[Any]:
    """Texts, those that are too long as tokens that fit: the end is cut, an end token stays."""
    cut: list[Any] = []
    for text in texts:
        ids = model.speech.whole_text_ids(text) if text else []
        if len(ids) <= model.context:
            cut.append(text)
        else:
            last = ids[-1:] if ids[-1] in model.tokenizer.eog_ids else []
            cut.append(ids[: model.context - len(last)] + last)
    return cut


def _listed(loaded: Loaded, name: str) -> dict[str, Any]:
    tag = f"{name}:latest"
    facts = loaded.facts
    return {"name": tag, "model": tag, "size": facts.n_bytes, "digest": facts.digest, "details": _details(loaded)}


def _details(loaded: Loaded) -> dict[str, Any]:
    facts = loaded.facts
    return {
        "parent_model": "",
        "format": "gguf",
        "family": facts.family,
        "families": [facts.family],
        "parameter_size": _counted(facts.n_parameters),
        "quantization_level": facts.format,
    }


def _counted(n: int) -> str:
    """A number of parameters: 134.52M, 1.24B."""
    return f"{n / 1e9:.2f}B" if n >= 1e9 else f"{n / 1e6:.2f}M"


def _modified(loaded: Loaded) -> str:
    """When the model was loaded: its file's own time is nobody's business."""
    return moment(datetime.fromtimestamp(loaded.created, UTC))
