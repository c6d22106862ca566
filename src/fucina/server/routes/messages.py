"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.responses import Response

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.params import SamplingParams
from fucina.server.answer import answering
from fucina.server.endpoint import Call, json_response
from fucina.server.forms import honored
from fucina.server.question import Question
from fucina.server.routes.messages_writer import MessageWriter
from fucina.server.sse import event_stream, frame
from fucina.server.state import Loaded
from fucina.server.thinking import told_effort, told_thinking
from fucina.server.turns import turn_messages, turn_tools
from fucina.server.wire.errors import ANTHROPIC
from fucina.server.wire.messages import CountRequest, MessagesRequest, TurnsRequest

_PING = frame({"type": "ping"}, "ping")


async def messages(call: Call) -> Response:
    """Answer a conversation."""
    body: MessagesRequest = call.body
    loaded = call.state.require(body.model)
    writer = MessageWriter(body, loaded)
    ask = partial(_question, body, call, loaded)
    if body.stream:
        return event_stream(_events(call, writer, ask), ANTHROPIC, call.state.options.stall_s, event="error")
    async with answering(call.state, 1, ask) as answer:
        async for steps in answer.steps():
            for step in steps:
                writer.events(step, answer.n_reasoning)
    return json_response(writer.message)


async def count_tokens(call: Call) -> Response:
    """Count the tokens of a conversation."""
    body: CountRequest = call.body
    loaded = call.state.require(body.model)
    return json_response({"input_tokens": await asyncio.to_thread(_count, body, loaded)})


def _count(body: CountRequest, loaded: Loaded) -> int:
    question = Question(params=SamplingParams(), **_asked(body, loaded))
    return len(question.prompt_ids(loaded))


def _question(body: MessagesRequest, call: Call, loaded: Loaded) -> Question:
    """What the body asks. Raises ApiError and ConfigError."""
    return Question(
        **_asked(body, loaded),
        params=_params(body, call.state.options.defaults),
        form=_form(body),
        cache_salt=call.salt(body.cache_salt),
        deadline_s=call.state.options.deadline_s,
    )


def _asked(body: TurnsRequest, loaded: Loaded) -> dict[str, Any]:
    """What becomes of the prompt. Raises ApiError and ConfigError."""
    thinking = None if body.thinking is None else _THINKS[body.thinking.type]
    effort = None if body.output_config is None else body.output_config.effort
    return {
        "messages": turn_messages(body),
        "tools": turn_tools(body),
        # high is what the interface takes where nothing is said
        "effort": told_effort(loaded, None if effort == "high" else effort, "output_config.effort"),
        "thinking": told_thinking(loaded, thinking, "thinking"),
    }


_THINKS = {"enabled": True, "disabled": False, "adaptive": None}


def _params(body: MessagesRequest, defaults: SamplingParams) -> SamplingParams:
    """What the engine is told, with the server's defaults for what is not said. Raises ConfigError."""
    given = {"temperature": body.temperature, "top_p": body.top_p, "seed": body.seed, "max_tokens": body.max_tokens}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if body.top_k is not None:
        changes["top_k"] = body.top_k if body.top_k > 0 else None
    if body.stop_sequences is not None:
        changes["stop"] = tuple(body.stop_sequences)
    return replace(defaults, **changes)


def _form(body: TurnsRequest) -> tuple[str, Constraint] | None:
    """The form that is asked for. Raises ApiError."""
    wanted = None if body.output_config is None else body.output_config.format
    if wanted is None:
        return None
    made = honored("output_config.format", lambda: Constraint.json_schema(wanted.schema_))
    return None if made is None else ("output_config.format", made)


async def _events(call: Call, writer: MessageWriter, ask: partial[Question]) -> AsyncGenerator[bytes, None]:
    """The answer as server-sent events."""
    async with answering(call.state, 1, ask) as answer:
        opening = writer.opening(len(answer.prompt_ids))
        async for steps in answer.steps():
            events = opening + [event for step in steps for event in writer.events(step, answer.n_reasoning)]
            opening = []
            yield b"".join(frame(event, event["type"]) for event in events) or _PING
