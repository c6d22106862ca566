"""Vectors of texts for the routes that give them, whatever their dialect."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import cast

from fucina.engine.embedding import Embedded
from fucina.engine.model import Model
from fucina.engine.options import Prompt
from fucina.errors import ConfigError, ContextFull
from fucina.server.beside import IsGone, beside
from fucina.server.failures import ApiError, as_api_error
from fucina.server.state import ServerState


async def vectors(state: ServerState, inputs: Sequence[Prompt], dimensions: int | None) -> list[Embedded]:
    """The vector of each input. It has a place in the queue like an answer. Raises ApiError."""
    model = state.require().model
    with state.place():
        found = await beside(partial(_vectors, model, inputs))
    if dimensions is not None and dimensions != len(found[0].vector):
        message = f"vectors have {len(found[0].vector)} dimensions here, and are not cut to {dimensions}"
        raise ApiError(501, message, code="unsupported", param="dimensions")
    return found


def _vectors(model: Model, inputs: Sequence[Prompt], is_gone: IsGone) -> list[Embedded]:
    found: list[Embedded] = []
    try:
        with closing(cast(Generator[tuple[Embedded, ...], None, None], model.iter_embed(inputs))) as passes:
            for finished in passes:
                found += finished
                if is_gone():
                    break
    except (ConfigError, ContextFull) as error:
        failure = as_api_error(error)
        raise ApiError(400, failure.message, code=failure.code, param="input") from error
    return found
