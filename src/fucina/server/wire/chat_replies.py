"""What OpenAI's chat completions answer, and a piece of a stream of them."""

from __future__ import annotations

from typing import Literal

from fucina.server.wire.fields import WireReply
from fucina.server.wire.usage import UsageReply


class TopLogprob(WireReply):
    """A token that could have stood in a place: its text, its bytes, and how probable it was."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """A token of an answer, and the likeliest ones in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(WireReply):
    """Each token of an answer."""

    content: list[TokenLogprob]
    refusal: None


class TokenDetail(WireReply):
    """The text that a token made certain, and whether it came from a draft or from the grammar."""

    text: str
    origin: Literal["model", "draft", "grammar"]


class CalledFunction(WireReply):
    """A function and its arguments, as JSON text."""

    name: str
    arguments: str


class ChatToolCall(WireReply):
    """A call that the model makes."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ReplyMessage(WireReply):
    """What the model says."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[ChatToolCall] | None = None


class ChatChoice(WireReply):
    """One answer."""

    index: int
    message: ReplyMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    token_details: list[TokenDetail] | None = None


class ChatReply(WireReply):
    """The answers to a question."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: UsageReply
