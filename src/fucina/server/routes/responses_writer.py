"""Writes an answer as OpenAI's responses do: events, and the response that they build up."""

from __future__ import annotations

import secrets
import time
from typing import Any

from fucina.decoding.params import SamplingParams
from fucina.engine.events import FinishEvent, TokenEvent
from fucina.server.answer import Step
from fucina.server.deltas import CallArguments, CallStart, Delta, ReasoningDelta, TextDelta
from fucina.server.failures import ApiError
from fucina.server.routes.response_items import (
    MESSAGE,
    SUMMARY,
    THOUGHTS,
    CallItem,
    Event,
    GrowingItem,
    TextItem,
    TextKind,
)
from fucina.server.sse import frame
from fucina.server.state import Loaded
from fucina.server.wire.responses import ResponsesRequest
from fucina.server.wire.responses_reply import response_usage


class ResponseWriter:
    """Writes one answer. `response` is all of it once it has ended, streamed or not."""

    def __init__(self, body: ResponsesRequest, params: SamplingParams, loaded: Loaded) -> None:
        self._texts = loaded.texts
        self._has_logprobs = params.logprobs is not None
        self._thoughts = THOUGHTS if body.reasoning is None or body.reasoning.summary is None else SUMMARY
        self._n_events = 0
        self._open: GrowingItem | None = None
        self._untold: list[TokenEvent] = []  # tokens that no event has told the probability of
        self.response: dict[str, Any] = {
            "id": f"resp_{secrets.token_hex(16)}",
            "object": "response",
            "created_at": int(time.time()),
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": loaded.name,
            "output": [],
            "usage": None,
            **_options(body, params),
        }

    def opening(self) -> list[Event]:
        """What is told before anything else."""
        begun = {**self.response, "output": []}
        return [self._numbered({"type": f"response.{kind}", "response": begun}) for kind in ("created", "in_progress")]

    def events(self, step: Step, n_thoughts: int) -> list[Event]:
        """What a step adds; `n_thoughts` tokens of the answer were thoughts so far."""
        found: list[Event] = []
        if isinstance(step.event, TokenEvent) and self._has_logprobs and not self._texts.is_end(step.event.token):
            self._untold.append(step.event)
        for delta in step.deltas:
            found += self._grow(delta)
        if isinstance(step.event, FinishEvent):
            found += self._finish(step.event, n_thoughts)
        return found

    def farewell(self, error: ApiError) -> bytes:
        """The end of a stream that failed on the way."""
        self.response |= {"status": "failed", "error": {"code": "server_error", "message": error.message}}
        told: Event = {"code": error.code, "message": error.message, "param": error.param}
        return b"".join(
            frame(self._numbered({"type": kind, **content}), kind)
            for kind, content in (("error", told), ("response.failed", {"response": self.response}))
        )

    def _grow(self, delta: Delta) -> list[Event]:
        match delta:
            case TextDelta(text):
                found, item = self._text_item(MESSAGE)
                logprobs = [self._texts.entry(event) for event in self._untold]
                self._untold = []
                return [*found, self._placed(item.grow(text, logprobs))]
            case ReasoningDelta(text):
                self._untold = []
                found, item = self._text_item(self._thoughts)
                return [*found, self._placed(item.grow(text))]
            case CallStart(_, call_id, name):
                self._untold = []
                return self._begin(CallItem(call_id, name))
            case CallArguments(_, text):
                self._untold = []
                assert isinstance(self._open, CallItem), "arguments follow the start of their call"
                return [self._placed(self._open.grow(text))]

    def _text_item(self, kind: TextKind) -> tuple[list[Event], TextItem]:
        """The item of that kind that grows, and what tells of its beginning if it is new."""
        if isinstance(self._open, TextItem) and self._open.kind is kind:
            return [], self._open
        item = TextItem(kind)
        return self._begin(item), item

    def _begin(self, item: GrowingItem) -> list[Event]:
        found = self._end("completed")
        self._open = item
        return found + [self._placed(event) for event in item.begin()]

    def _end(self, status: str) -> list[Event]:
        item, self._open = self._open, None
        if item is None:
            return []
        found = [self._placed(event) for event in item.end(status)]
        self.response["output"].append(item.whole(status))
        return found

    def _finish(self, end: FinishEvent, n_thoughts: int) -> list[Event]:
        is_whole = end.reason != "length"
        status = "completed" if is_whole else "incomplete"
        found = self._text_item(MESSAGE)[0] if self._open is None else []
        found += self._end(status)
        self.response |= {
            "status": status,
            "completed_at": int(time.time()) if is_whole else None,
            "incomplete_details": None if is_whole else {"reason": "max_output_tokens"},
            "usage": response_usage(end, n_thoughts),
        }
        return [*found, self._numbered({"type": f"response.{status}", "response": self.response})]

    def _placed(self, event: Event) -> Event:
        """An event on the item that grows."""
        return self._numbered({**event, "output_index": len(self.response["output"])})

    def _numbered(self, event: Event) -> Event:
        self._n_events += 1
        return {**event, "sequence_number": self._n_events - 1}


def _options(body: ResponsesRequest, params: SamplingParams) -> dict[str, Any]:
    """What a response repeats of its request, as it was taken."""
    text, reasoning = body.text, body.reasoning
    form = None if text is None or text.format is None else text.format.model_dump(by_alias=True, exclude_none=True)
    choice = body.tool_choice
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {
            "effort": None if reasoning is None else reasoning.effort,
            "summary": None if reasoning is None else reasoning.summary,
        },
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": False,
        "temperature": params.temperature,
        "text": {"format": form or {"type": "text"}},
        "tool_choice": "auto" if choice is None else choice if isinstance(choice, str) else choice.model_dump(),
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": bool(tool.strict),
            }
            for tool in body.functions
        ],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": "disabled",
        "user": body.user,
    }
