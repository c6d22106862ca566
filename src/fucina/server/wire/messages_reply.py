"""Anthropic's answers: https://docs.anthropic.com/en/api/messages."""

from __future__ import annotations

from typing import Any, Literal

from fucina.engine.events import FinishEvent
from fucina.server.wire.fields import WireReply
from fucina.server.wire.usage import SpeculationUsage, Timing, usage_of


class TextReply(WireReply):
    """What the model says."""

    type: Literal["text"]
    text: str


class ThinkingReply(WireReply):
    """What it thought before; nothing signs it."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseReply(WireReply):
    """A tool that it calls."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ThinkingTokens(WireReply):
    """Of the answer's tokens, those that were thoughts."""

    thinking_tokens: int


class MessageUsage(WireReply):
    """Tokens: of the prompt, those computed now and those that were in the cache; and those of the answer."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens
    speculation: SpeculationUsage | None = None
    timings: Timing | None = None


class MessageReply(WireReply):
    """An answer."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextReply | ThinkingReply | ToolUseReply]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]
    stop_sequence: str | None
    usage: MessageUsage


def message_usage(end: FinishEvent, n_thoughts: int) -> dict[str, Any]:
    """The counts of an answer. What was in the cache is no input token; entering the cache costs nothing."""
    usage = usage_of([end])
    told: dict[str, Any] = {name: usage[name] for name in ("timings", "speculation") if name in usage}
    return {
        "input_tokens": end.usage.prompt_tokens - end.usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": end.usage.cached_tokens,
        "output_tokens": end.usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": n_thoughts},
        **told,
    }
