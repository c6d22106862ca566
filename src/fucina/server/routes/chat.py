"""POST /v1/chat/completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from fucina.engine.events import FinishEvent, TokenEvent
from fucina.server.answer import Outcome, Step, answering, whole
from fucina.server.deltas import CallArguments, CallStart, Delta, ReasoningDelta, TextDelta
from fucina.server.endpoint import Call, json_response
from fucina.server.forms import wanted_form
from fucina.server.messages import chat_messages, tool_use
from fucina.server.question import Question
from fucina.server.reading import finish_reason, token_details
from fucina.server.sse import COMMENT, DONE, event_stream, frame
from fucina.server.state import Loaded
from fucina.server.wire.chat import ChatRequest, Prediction
from fucina.server.wire.errors import OPENAI
from fucina.server.wire.usage import usage_of


async def chat(call: Call) -> Response:
    """Answer a conversation."""
    body: ChatRequest = call.body
    writer = _Writer(body, call.state.require(body.model))
    ask = partial(_question, body, call)
    if body.stream:
        return event_stream(_chunks(call, writer, ask), OPENAI, call.state.options.stall_s, last=DONE)
    async with answering(call.state, body.n or 1, ask) as answer:
        return json_response(writer.whole(await whole(answer), answer.n_reasoning))


def _question(body: ChatRequest, call: Call) -> Question:
    """What the body asks. Raises ApiError and ConfigError."""
    n_top = (body.top_logprobs or 0) if body.logprobs else None
    max_tokens = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    return Question(
        messages=chat_messages(body.messages),
        tools=tool_use(body),
        effort=body.reasoning_effort,
        thinking=body.chat_template_kwargs.enable_thinking if body.chat_template_kwargs is not None else None,
        params=body.params(call.state.options.defaults, max_tokens=max_tokens, logprobs=n_top),
        form=wanted_form(body),
        bias=body.bias(),
        min_tokens=body.min_tokens or 0,
        references=[*(body.references or ()), *_predicted(body.prediction)],
        n=body.n or 1,
        cache_salt=call.salt(body.cache_salt),
        deadline_s=call.state.options.deadline_s,
    )


def _predicted(prediction: Prediction | None) -> list[str]:
    """What an answer is said to repeat."""
    if prediction is None:
        return []
    content = prediction.content
    return [content] if isinstance(content, str) else [part.text for part in content]


async def _chunks(call: Call, writer: _Writer, ask: partial[Question]) -> AsyncGenerator[bytes, None]:
    """The answer as server-sent events."""
    body: ChatRequest = call.body
    n = body.n or 1
    ends: dict[int, FinishEvent] = {}
    async with answering(call.state, n, ask) as answer:
        opening = b"".join(frame(writer.chunk(i, {"role": "assistant", "content": ""})) for i in range(n))
        async for steps in answer.steps():
            yield opening + (b"".join(frame(chunk) for step in steps for chunk in writer.chunks(step)) or COMMENT)
            opening = b""
            ends |= {step.choice: step.event for step in steps if isinstance(step.event, FinishEvent)}
        n_reasoning = answer.n_reasoning
    if body.stream_options is not None and body.stream_options.include_usage:
        yield frame(writer.usage_chunk([ends[choice] for choice in sorted(ends)], n_reasoning))
    yield DONE


class _Writer:
    """Writes one answer down, as a whole or in chunks."""

    def __init__(self, body: ChatRequest, loaded: Loaded) -> None:
        self._texts = loaded.texts
        self._wants_logprobs, self._wants_details = bool(body.logprobs), bool(body.token_details)
        self._has_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": loaded.name,
            "system_fingerprint": loaded.fingerprint,
        }
        self._n_calls: dict[int, int] = {}

    def whole(self, outcomes: Sequence[Outcome], n_reasoning: int) -> dict[str, Any]:
        """The whole answer."""
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choice(index, outcome) for index, outcome in enumerate(outcomes)],
            "usage": usage_of([outcome.finish for outcome in outcomes], n_reasoning),
        }

    def _choice(self, index: int, outcome: Outcome) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": outcome.text, "refusal": None}
        if outcome.reasoning:
            message["reasoning_content"] = outcome.reasoning
        if outcome.calls:
            message["content"] = outcome.text or None
            message["tool_calls"] = [
                {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
                for one in outcome.calls
            ]
        choice = {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(outcome.tokens) if self._wants_logprobs else None,
            "finish_reason": finish_reason(outcome.finish, has_calls=bool(outcome.calls)),
        }
        if self._wants_details:
            choice["token_details"] = token_details(self._texts, outcome.tokens)
        return choice

    def chunks(self, step: Step) -> list[dict[str, Any]]:
        """The chunks of one step; none where there is nothing to say."""
        tokens = [step.event] if isinstance(step.event, TokenEvent) else []
        deltas = [self._delta(step.choice, delta) for delta in step.deltas]
        if tokens and not deltas and (self._wants_logprobs or self._wants_details):
            deltas = [{"content": ""}]
        # what is told of the token goes with the first of what it says
        found = [self.chunk(step.choice, delta, tokens if i == 0 else []) for i, delta in enumerate(deltas)]
        if isinstance(step.event, FinishEvent):
            reason = finish_reason(step.event, has_calls=step.choice in self._n_calls)
            found.append(self.chunk(step.choice, {}, reason=reason))
        return found

    def chunk(
        self, choice: int, delta: dict[str, Any], tokens: Sequence[TokenEvent] = (), reason: str | None = None
    ) -> dict[str, Any]:
        """One chunk of one choice."""
        content: dict[str, Any] = {
            "index": choice,
            "delta": delta,
            "logprobs": self._logprobs(tokens) if self._wants_logprobs and tokens else None,
            "finish_reason": reason,
        }
        if self._wants_details and tokens:
            content["token_details"] = token_details(self._texts, tokens)
        return self._chunk([content])

    def usage_chunk(self, ends: Sequence[FinishEvent], n_reasoning: int) -> dict[str, Any]:
        """The last chunk, which has no choices."""
        return self._chunk([]) | {"usage": usage_of(ends, n_reasoning)}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": choices}
        return chunk | {"usage": None} if self._has_usage else chunk

    def _delta(self, choice: int, delta: Delta) -> dict[str, Any]:
        match delta:
            case TextDelta(text):
                return {"content": text}
            case ReasoningDelta(text):
                return {"reasoning_content": text}
            case CallStart(call, call_id, name):
                self._n_calls[choice] = call + 1
                function = {"name": name, "arguments": ""}
                return {"tool_calls": [{"index": call, "id": call_id, "type": "function", "function": function}]}
            case CallArguments(call, text):
                return {"tool_calls": [{"index": call, "function": {"arguments": text}}]}

    def _logprobs(self, tokens: Sequence[TokenEvent]) -> dict[str, Any]:
        entries = [self._texts.entry(event) for event in tokens if not self._texts.is_end(event.token)]
        return {"content": entries, "refusal": None}
