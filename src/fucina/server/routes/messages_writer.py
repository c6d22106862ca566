"""Writes an answer as Anthropic's messages do: events, and the message that they build up."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

from pydantic_core import from_json

from fucina.engine.events import FinishEvent
from fucina.server.answer import Step
from fucina.server.deltas import CallArguments, CallStart, Delta, ReasoningDelta, TextDelta
from fucina.server.state import Loaded
from fucina.server.wire.messages import MessagesRequest
from fucina.server.wire.messages_reply import message_usage

Event = dict[str, Any]


class _Kind(NamedTuple):
    """A kind of block: what it is begun with, and where what is added goes."""

    begun: dict[str, Any]
    delta: str
    field: str


_TEXT = _Kind({"type": "text", "text": ""}, "text_delta", "text")
_THOUGHTS = _Kind({"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking")


class _Block:
    """A block that grows."""

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.texts: list[str] = []

    def whole(self) -> dict[str, Any]:
        """The block itself."""
        text = "".join(self.texts)
        if self.kind.delta != "input_json_delta":
            return {**self.kind.begun, self.kind.field: text}
        # arguments that were cut off are told as far as they came, as the vendor's own clients read them
        value = from_json(text or "{}", allow_partial=True)
        return {**self.kind.begun, "input": value if isinstance(value, dict) else {}}


class MessageWriter:
    """Writes one answer. `message` is all of it once it has ended, streamed or not."""

    def __init__(self, body: MessagesRequest, loaded: Loaded) -> None:
        self._stops, self._max_tokens = body.stop_sequences or [], body.max_tokens
        self._open: _Block | None = None
        self.message: dict[str, Any] = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": loaded.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }

    def opening(self, n_prompt: int) -> list[Event]:
        """What is told before anything else. How much of the prompt was in the cache is told at the end."""
        usage = {
            "input_tokens": n_prompt,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        }
        return [{"type": "message_start", "message": {**self.message, "content": [], "usage": usage}}, {"type": "ping"}]

    def events(self, step: Step, n_thoughts: int) -> list[Event]:
        """What a step adds; `n_thoughts` tokens of the answer were thoughts so far."""
        found: list[Event] = []
        for delta in step.deltas:
            found += self._grow(delta)
        if isinstance(step.event, FinishEvent):
            found += self._finish(step.event, n_thoughts)
        return found

    def _grow(self, delta: Delta) -> list[Event]:
        match delta:
            case TextDelta(text):
                return [*self._continued(_TEXT), self._added(text)]
            case ReasoningDelta(text):
                return [*self._continued(_THOUGHTS), self._added(text)]
            case CallStart(_, call_id, name):
                begun = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                return self._begin(_Kind(begun, "input_json_delta", "partial_json"))
            case CallArguments(_, text):
                return [self._added(text)]

    def _continued(self, kind: _Kind) -> list[Event]:
        """Have a block of that kind grow."""
        return [] if self._open is not None and self._open.kind is kind else self._begin(kind)

    def _begin(self, kind: _Kind) -> list[Event]:
        found = self._end()
        self._open = _Block(kind)
        return [*found, self._event("content_block_start", content_block=kind.begun)]

    def _added(self, text: str) -> Event:
        assert self._open is not None, "a block has begun before it grows"
        self._open.texts.append(text)
        kind = self._open.kind
        return self._event("content_block_delta", delta={"type": kind.delta, kind.field: text})

    def _end(self) -> list[Event]:
        if self._open is None:
            return []
        found = [self._event("content_block_stop")]
        if self._open.kind is _THOUGHTS:
            # clients keep a signature with thoughts; there is nobody here who signs
            found.insert(0, self._event("content_block_delta", delta={"type": "signature_delta", "signature": ""}))
        self.message["content"].append(self._open.whole())
        self._open = None
        return found

    def _event(self, kind: str, **content: Any) -> Event:
        return {"type": kind, "index": len(self.message["content"]), **content}

    def _finish(self, end: FinishEvent, n_thoughts: int) -> list[Event]:
        found = self._end()
        stopped = end.stop if isinstance(end.stop, str) and end.stop in self._stops else None
        reason, usage = self._reason(end, stopped), message_usage(end, n_thoughts)
        self.message |= {"stop_reason": reason, "stop_sequence": stopped, "usage": usage}
        last = {"stop_reason": reason, "stop_sequence": stopped}
        return [*found, {"type": "message_delta", "delta": last, "usage": usage}, {"type": "message_stop"}]

    def _reason(self, end: FinishEvent, stopped: str | None) -> str:
        if end.reason == "length":
            is_spent = end.usage.completion_tokens >= self._max_tokens
            return "max_tokens" if is_spent else "model_context_window_exceeded"
        if stopped is not None:
            return "stop_sequence"
        has_calls = any(block["type"] == "tool_use" for block in self.message["content"])
        return "tool_use" if has_calls else "end_turn"
