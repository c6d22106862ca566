"""POST /tokenize, /detokenize and /apply-template."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from fucina.engine.wording import Message
from fucina.server.endpoint import Call, json_response
from fucina.server.failures import ApiError
from fucina.server.messages import chat_messages, tools_of
from fucina.server.state import Loaded
from fucina.server.wire.chat import ChatMessage
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
    return json_response(await asyncio.to_thread(_written, call.state.require(body.model), body))


def _written(loaded: Loaded, body: ApplyTemplateRequest) -> dict[str, Any]:
    speech = loaded.model.speech
    messages, told = _prompt(loaded, body, body.messages)
    return {"prompt": speech.chat_text(messages, **told), "count": len(speech.chat_ids(messages, **told))}


def _tokenized(loaded: Loaded, body: TokenizeRequest) -> dict[str, Any]:
    ids, texts = _ids(loaded, body), loaded.texts
    reply: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": loaded.model.context}
    if body.with_pieces:
        reply["tokens"] = [{"id": token, "piece": _piece(texts.raw(token))} for token in ids]
    if body.return_token_strs:
        reply["token_strs"] = [texts.text(token) for token in ids]
    return reply


def _ids(loaded: Loaded, body: TokenizeRequest) -> list[int]:
    given = [name for name in ("content", "prompt", "messages") if getattr(body, name) is not None]
    if len(given) != 1:
        message = f"one of 'content', 'prompt' and 'messages' is wanted, not {len(given)} of them"
        raise ApiError(400, message, code="invalid_value", param=given[1] if given else "content")
    if body.messages is not None:
        messages, told = _prompt(loaded, body, body.messages)
        return loaded.model.speech.chat_ids(messages, **told)
    text = body.content if body.content is not None else body.prompt
    assert text is not None
    asked = body.add_special if body.add_special is not None else body.add_special_tokens
    ids = loaded.model.tokenizer.encode(text, special=body.parse_special is not False)
    begin = loaded.model.speech.prompt_ids("") if (asked if asked is not None else body.prompt is not None) else []
    return ids if ids[: len(begin)] == begin else [*begin, *ids]


def _prompt(
    loaded: Loaded, body: TokenizeRequest | ApplyTemplateRequest, messages: Sequence[ChatMessage]
) -> tuple[list[Message], dict[str, Any]]:
    """What the template is given, as for an answer. Raises ApiError and ConfigError."""
    switches = body.chat_template_kwargs
    thinking = switches.enable_thinking if switches is not None else None
    return loaded.manners.prompt(chat_messages(messages), tools_of(body.tools), thinking=thinking)


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)
