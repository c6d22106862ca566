"""POST /api/chat and /api/generate."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

import orjson
from starlette.responses import Response

from fucina.engine.events import FinishEvent, TokenEvent
from fucina.server.answer import Outcome, Step, WholeCall, answering, whole
from fucina.server.deltas import CallArguments, CallStart, ReasoningDelta, TextDelta
from fucina.server.endpoint import Call, json_response
from fucina.server.moments import nanoseconds, now
from fucina.server.ndjson import line, line_stream
from fucina.server.ollama_question import chat_question, generate_question
from fucina.server.question import Question
from fucina.server.reading import TokenTexts, finish_reason
from fucina.server.wire.errors import OLLAMA
from fucina.server.wire.ollama import AnswerFields, GenerateRequest, OllamaChatRequest


async def chat(call: Call) -> Response:
    """Answer a conversation."""
    body: OllamaChatRequest = call.body
    if not body.messages:
        return _loaded(call, _message)
    return await _answer(call, partial(chat_question, call), _message)


async def generate(call: Call) -> Response:
    """Answer a text, or continue it."""
    body: GenerateRequest = call.body
    if not body.prompt:
        return _loaded(call, _text)
    return await _answer(call, partial(generate_question, call), _text)


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
