"""POST /api/chat and /api/generate."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from starlette.responses import Response

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.params import SamplingParams
from fucina.engine.events import FinishEvent, TokenEvent
from fucina.server.answer import Outcome, Step, WholeCall, answering, whole
from fucina.server.deltas import CallArguments, CallStart, ReasoningDelta, TextDelta
from fucina.server.endpoint import Call, json_response
from fucina.server.failures import ApiError
from fucina.server.forms import honored
from fucina.server.messages import tools_of
from fucina.server.moments import nanoseconds, now
from fucina.server.ndjson import line, line_stream
from fucina.server.question import Question
from fucina.server.reading import TokenTexts, finish_reason
from fucina.server.tools.definition import ToolUse
from fucina.server.wire.chat import ToolDefinition
from fucina.server.wire.errors import OLLAMA
from fucina.server.wire.ollama import AnswerFields, GenerateRequest, OllamaChatRequest, OllamaMessage, OllamaOptions

# A share of the probability that keeps one token, where a request says 0.
_LEAST_SHARE = 1e-9


async def chat(call: Call) -> Response:
    """Answer a conversation."""
    body: OllamaChatRequest = call.body
    if not body.messages:
        return _loaded(call, _message)
    messages = [_written(message) for message in body.messages]
    return await _answer(call, partial(_question, call, body.tools, messages=messages), _message)


async def generate(call: Call) -> Response:
    """Answer a text, or continue it."""
    body: GenerateRequest = call.body
    if not body.prompt:
        return _loaded(call, _text)
    return await _answer(call, partial(_question, call, None, **_asked(call, body)), _text)


# How a piece of an answer is told: of text, thoughts and calls.
_Told = Callable[[str, str, Sequence[WholeCall]], dict[str, Any]]


def _message(text: str, thoughts: str, calls: Sequence[WholeCall]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thoughts:
        message["thinking"] = thoughts
    if calls:
        message["tool_calls"] = [
            {"id": one.id, "function": {"name": one.name, "arguments": orjson.loads(one.arguments)}} for one in calls
        ]
    return {"message": message}


def _text(text: str, thoughts: str, _: Sequence[WholeCall]) -> dict[str, Any]:
    return {"response": text} | ({"thinking": thoughts} if thoughts else {})


def _loaded(call: Call, told: _Told) -> Response:
    """What is said where nothing is asked: the model is there."""
    call.state.require(call.body.model)
    return json_response(
        {"model": call.body.model, "created_at": now(), **told("", "", ()), "done_reason": "load", "done": True}
    )


async def _answer(call: Call, ask: Callable[[], Question], told: _Told) -> Response:
    loaded = call.state.require(call.body.model)
    writer = _Writer(call.body, loaded.texts, told)
    if call.body.stream is not False:
        return line_stream(_lines(call, writer, ask), OLLAMA, call.state.options.stall_s)
    async with answering(call.state, 1, ask) as answer:
        return json_response(writer.whole((await whole(answer))[0]))


async def _lines(call: Call, writer: _Writer, ask: Callable[[], Question]) -> AsyncGenerator[bytes, None]:
    """The answer, a line a piece; in a long silence a piece that says nothing."""
    async with answering(call.state, 1, ask) as answer:
        async for steps in answer.steps():
            pieces = [line(piece) for step in steps for piece in writer.pieces(step)]
            if pieces or not steps:
                yield b"".join(pieces) or line(writer.piece())


class _Writer:
    """Writes one answer down, as a whole or in pieces."""

    def __init__(self, body: AnswerFields, texts: TokenTexts, told: _Told) -> None:
        self._model, self._texts, self._told = body.model, texts, told
        self._wants_logprobs = bool(body.logprobs)
        self._calls: list[WholeCall] = []  # begun, and not told yet

    def whole(self, outcome: Outcome) -> dict[str, Any]:
        """The whole answer."""
        calls = [one for one in outcome.calls if _is_whole(one)]
        return self.piece(outcome.text, outcome.reasoning, calls, outcome.tokens) | _end(
            outcome.finish, has_calls=bool(calls)
        )

    def pieces(self, step: Step) -> list[dict[str, Any]]:
        """What one step brings: none where that is nothing."""
        text = "".join(delta.text for delta in step.deltas if isinstance(delta, TextDelta))
        thoughts = "".join(delta.text for delta in step.deltas if isinstance(delta, ReasoningDelta))
        for delta in step.deltas:
            if isinstance(delta, CallStart):
                self._calls.append(WholeCall(delta.id, delta.name))
            elif isinstance(delta, CallArguments):
                self._calls[-1].arguments += delta.text
        if isinstance(step.event, FinishEvent):
            calls = [one for one in self._calls if _is_whole(one)]
            end = _end(step.event, has_calls=bool(calls))
            return [*([self.piece(calls=calls)] if calls else []), self.piece(text, thoughts) | end]
        if text or thoughts or self._wants_logprobs:
            return [self.piece(text, thoughts, (), [step.event])]
        return []

    def piece(
        self,
        text: str = "",
        thoughts: str = "",
        calls: Sequence[WholeCall] = (),
        tokens: Sequence[TokenEvent] = (),
    ) -> dict[str, Any]:
        """A piece that something follows."""
        piece = {"model": self._model, "created_at": now(), **self._told(text, thoughts, calls), "done": False}
        if self._wants_logprobs and tokens:
            piece["logprobs"] = [self._texts.entry(one) for one in tokens if not self._texts.is_end(one.token)]
        return piece


def _is_whole(call: WholeCall) -> bool:
    """Whether a call was not cut off within its arguments."""
    try:
        return isinstance(orjson.loads(call.arguments), dict)
    except orjson.JSONDecodeError:
        return False


def _end(finish: FinishEvent, *, has_calls: bool) -> dict[str, Any]:
    """What is told of an answer that has ended."""
    timings, usage = finish.timings, finish.usage
    return {
        "done": True,
        "done_reason": "length" if finish_reason(finish, has_calls=has_calls) == "length" else "stop",
        "total_duration": nanoseconds(timings.queue_s + timings.prefill_s + timings.decode_s),
        "load_duration": 0,
        "prompt_eval_count": usage.prompt_tokens,
        "prompt_eval_duration": nanoseconds(timings.prefill_s),
        "eval_count": usage.completion_tokens,
        "eval_duration": nanoseconds(timings.decode_s),
    }


def _question(call: Call, tools: Sequence[ToolDefinition] | None, **asked: Any) -> Question:
    """What is asked: messages or a prompt. Raises ApiError and ConfigError."""
    body: AnswerFields = call.body
    model = call.state.require().model
    n_top = (body.top_logprobs or 0) if body.logprobs else None
    thinking = body.think if isinstance(body.think, bool) else None
    if thinking is False and model.constraints.thinking(()) is None:
        thinking = None  # it never does
    return Question(
        tools=ToolUse(tools_of(tools)),
        effort=body.think if isinstance(body.think, str) else None,
        thinking=thinking,
        params=_params(body.options or OllamaOptions(), call.state.options.defaults, model.context, n_top),
        form=_form(body),
        cache_salt=call.salt(None),
        deadline_s=call.state.options.deadline_s,
        **asked,
    )


def _params(options: OllamaOptions, defaults: SamplingParams, context: int, n_top: int | None) -> SamplingParams:
    """How to choose tokens. Raises ApiError and ConfigError."""
    if options.num_ctx is not None and options.num_ctx > context:
        message = f"num_ctx is {options.num_ctx}, but {context} tokens is what this model is served with"
        raise ApiError(400, message, code="invalid_value", param="options.num_ctx")
    same = ("temperature", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
    changes: dict[str, Any] = {name: getattr(options, name) for name in same if getattr(options, name) is not None}
    if options.top_p is not None:
        changes["top_p"] = max(options.top_p, _LEAST_SHARE)
    if options.top_k is not None:
        changes["top_k"] = options.top_k if options.top_k > 0 else None
    if options.repeat_last_n is not None:
        changes["penalty_window"] = options.repeat_last_n if options.repeat_last_n >= 0 else None
    if options.seed is not None and options.seed >= 0:
        changes["seed"] = options.seed
    if options.num_predict is not None and options.num_predict > 0:
        changes["max_tokens"] = options.num_predict
    if options.stop is not None:
        changes["stop"] = (options.stop,) if isinstance(options.stop, str) else tuple(options.stop)
    return replace(defaults, logprobs=n_top, **changes)


def _form(body: AnswerFields) -> tuple[str, Constraint] | None:
    """The form that is asked for. Raises ApiError."""
    wanted = body.format
    if wanted is None or wanted == "":
        return None
    made = honored(
        "format", Constraint.any_json if isinstance(wanted, str) else partial(Constraint.json_schema, wanted)
    )
    return None if made is None else ("format", made)


def _written(message: OllamaMessage) -> dict[str, object]:
    """A message as templates take it."""
    written: dict[str, object] = {"role": message.role, "content": message.content or ""}
    if message.thinking is not None:
        written["reasoning_content"] = message.thinking
    if message.tool_name is not None:
        written["name"] = message.tool_name
    if message.tool_call_id is not None:
        written["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        written["tool_calls"] = [
            {
                "id": one.id or f"call_{i}",
                "type": "function",
                "function": {"name": one.function.name, "arguments": one.function.arguments},
            }
            for i, one in enumerate(message.tool_calls)
        ]
    return written


def _asked(call: Call, body: GenerateRequest) -> dict[str, Any]:
    """The prompt as it is, or as a user's message where there is a template. Raises ApiError."""
    has_template = call.state.require(body.model).facts.template is not None
    if has_template and not body.raw:
        system = [{"role": "system", "content": body.system}] if body.system else []
        return {"messages": [*system, {"role": "user", "content": body.prompt}]}
    if body.system:
        why = "raw prompts have none" if has_template else "this model has no chat template"
        raise ApiError(400, f"'system' has no place: {why}", code="invalid_value", param="system")
    return {"prompt": body.prompt}
