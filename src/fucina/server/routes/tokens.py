"""POST /tokenize, /detokenize and /apply-template."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from starlette.responses import Response

from fucina.engine.model import Model
from fucina.server.endpoint import Call, json_response
from fucina.server.failures import ApiError
from fucina.server.messages import chat_messages
from fucina.server.state import Loaded
from fucina.server.wire.tokens import ApplyTemplateRequest, DetokenizeRequest, TokenizeRequest


async def tokenize(call: Call) -> Response:
    """Make tokens of a text or a conversation."""
    body: TokenizeRequest = call.body
    return json_response(await asyncio.to_thread(_tokenized, call.state.require(body.model), body))


async def detokenize(call: Call) -> Response:
    """Make a text of tokens."""
    body: DetokenizeRequest = call.body
    model = call.state.require(body.model).model
    n = model.tokenizer.vocab_size
    for i, token in enumerate(body.tokens):
        if token >= n:
            message = f"there is no token {token}: they are 0 to {n - 1}"
            raise ApiError(400, message, code="invalid_value", param=f"tokens[{i}]")
    text = await asyncio.to_thread(model.tokenizer.decode, body.tokens)
    return json_response({"content": text, "prompt": text})


async def apply_template(call: Call) -> Response:
    """Write a conversation out as the model reads it."""
    body: ApplyTemplateRequest = call.body
    speech = call.state.require(body.model).model.speech
    messages, told = chat_messages(body.messages), _told(body)
    text = await asyncio.to_thread(partial(speech.chat_text, messages, **told))
    ids = await asyncio.to_thread(partial(speech.chat_ids, messages, **told))
    return json_response({"prompt": text, "count": len(ids)})


def _tokenized(loaded: Loaded, body: TokenizeRequest) -> dict[str, Any]:
    ids, texts = _ids(loaded.model, body), loaded.texts
    reply: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": loaded.model.context}
    if body.with_pieces:
        reply["tokens"] = [{"id": token, "piece": _piece(texts.raw(token))} for token in ids]
    if body.return_token_strs:
        reply["token_strs"] = [texts.text(token) for token in ids]
    return reply


def _ids(model: Model, body: TokenizeRequest) -> list[int]:
    given = [name for name in ("content", "prompt", "messages") if getattr(body, name) is not None]
    if len(given) != 1:
        message = f"one of 'content', 'prompt' and 'messages' is wanted, not {len(given)} of them"
        raise ApiError(400, message, code="invalid_value", param=given[1] if given else "content")
    if body.messages is not None:
        return model.speech.chat_ids(chat_messages(body.messages), **_told(body))
    text = body.content if body.content is not None else body.prompt
    assert text is not None
    asked = body.add_special if body.add_special is not None else body.add_special_tokens
    ids = model.tokenizer.encode(text, special=body.parse_special is not False)
    begin = model.speech.prompt_ids("") if (asked if asked is not None else body.prompt is not None) else []
    return ids if ids[: len(begin)] == begin else [*begin, *ids]


def _told(body: TokenizeRequest | ApplyTemplateRequest) -> dict[str, Any]:
    """What a template is told besides the messages."""
    tools = [tool.model_dump(exclude_none=True) for tool in body.tools or ()]
    return {**(body.chat_template_kwargs or {}), "tools": tools or None}


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)
