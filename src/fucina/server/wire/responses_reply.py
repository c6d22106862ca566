"""OpenAI's answers to responses: https://platform.openai.com/docs/api-reference/responses/object."""

from __future__ import annotations

from typing import Any, Literal

from fucina.engine.events import FinishEvent
from fucina.server.wire.fields import WireReply
from fucina.server.wire.usage import SpeculationUsage, Timing, usage_of

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class TextPart(WireReply):
    """What the model says; `logprobs` where they are asked for."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[Any]


class MessageOutput(WireReply):
    """An answer in words."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: Status
    content: list[TextPart]


class ThoughtPart(WireReply):
    """What the model thought."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningOutput(WireReply):
    """Thoughts: in `summary` where one is asked for, else in `content`."""

    id: str
    type: Literal["reasoning"]
    status: Status
    summary: list[ThoughtPart]
    content: list[ThoughtPart]


class CallOutput(WireReply):
    """A function that the model calls."""

    id: str
    type: Literal["function_call"]
    status: Status
    call_id: str
    name: str
    arguments: str


class InputDetails(WireReply):
    """Of the prompt's tokens, those that were in the cache."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(WireReply):
    """Of the answer's tokens, those that were thoughts."""

    reasoning_tokens: int


class ResponseUsage(WireReply):
    """Tokens that an answer took."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int
    speculation: SpeculationUsage | None = None
    timings: Timing | None = None


class IncompleteDetails(WireReply):
    """Why an answer is not whole."""

    reason: Literal["max_output_tokens"]


class ResponseFailure(WireReply):
    """Why there is no answer."""

    code: str
    message: str


class ResponseReply(WireReply):
    """An answer, with the options that it was made with."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Status
    background: Literal[False]
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[MessageOutput | ReasoningOutput | CallOutput]
    parallel_tool_calls: bool
    previous_response_id: None
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: Literal[False]
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None


def response_usage(end: FinishEvent, n_thoughts: int) -> dict[str, Any]:
    """The counts of an answer."""
    usage = usage_of([end])
    told: dict[str, Any] = {name: usage[name] for name in ("timings", "speculation") if name in usage}
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": end.usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": n_thoughts},
        "total_tokens": usage["total_tokens"],
        **told,
    }
