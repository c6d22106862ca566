"""POST /v1/responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

from starlette.responses import Response

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.params import SamplingParams
from fucina.server.answer import answering
from fucina.server.endpoint import Call, json_response
from fucina.server.forms import honored
from fucina.server.items import function_use, item_messages
from fucina.server.question import Question
from fucina.server.routes.responses_writer import ResponseWriter
from fucina.server.sse import COMMENT, event_stream, frame
from fucina.server.state import Loaded
from fucina.server.thinking import told_effort
from fucina.server.wire.errors import OPENAI
from fucina.server.wire.responses import NamedFormat, ResponsesRequest
from fucina.server.wire.sampling import AnyJsonFormat


async def responses(call: Call) -> Response:
    """Answer items."""
    body: ResponsesRequest = call.body
    loaded, options = call.state.require(body.model), call.state.options
    params = body.params(options.defaults, max_tokens=body.max_output_tokens, logprobs=body.n_logprobs)
    writer = ResponseWriter(body, params, loaded)
    ask = partial(_question, body, params, call, loaded)
    if body.stream:
        return event_stream(_events(call, writer, ask), OPENAI, options.stall_s, farewell=writer.farewell)
    async with answering(call.state, 1, ask) as answer:
        async for steps in answer.steps():
            for step in steps:
                writer.events(step, answer.n_reasoning)
    return json_response(writer.response)


def _question(body: ResponsesRequest, params: SamplingParams, call: Call, loaded: Loaded) -> Question:
    """What the body asks. Raises ApiError and ConfigError."""
    return Question(
        messages=item_messages(body.instructions, body.input),
        tools=function_use(body),
        effort=told_effort(loaded, body.reasoning.effort if body.reasoning else None, "reasoning.effort"),
        params=params,
        form=_form(body),
        bias=body.bias(),
        min_tokens=body.min_tokens or 0,
        cache_salt=call.salt(body.cache_salt),
        deadline_s=call.state.options.deadline_s,
        source="input",
    )


def _form(body: ResponsesRequest) -> tuple[str, Constraint] | None:
    """The form that is asked for. Raises ApiError."""
    wanted = None if body.text is None else body.text.format
    made: Constraint | None = None
    if isinstance(wanted, AnyJsonFormat):
        made = Constraint.any_json()
    elif isinstance(wanted, NamedFormat):
        schema = wanted.schema_
        made = honored("text.format", lambda: Constraint.json_schema(schema))
    return None if made is None else ("text.format", made)


async def _events(call: Call, writer: ResponseWriter, ask: partial[Question]) -> AsyncGenerator[bytes, None]:
    """The answer as server-sent events."""
    async with answering(call.state, 1, ask) as answer:
        opening = writer.opening()
        async for steps in answer.steps():
            events = opening + [event for step in steps for event in writer.events(step, answer.n_reasoning)]
            opening = []
            yield b"".join(frame(event, event["type"]) for event in events) or COMMENT
