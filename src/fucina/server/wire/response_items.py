"""The items of OpenAI's responses: https://platform.openai.com/docs/api-reference/responses/create."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fucina.server.wire.contents import OTHERS, Text, TextOr, Unsupported, by_type, tagged
from fucina.server.wire.fields import BOOKKEEPING, WirePart, refused

_ID = Annotated[str, Field(max_length=256)]


class InputText(WirePart):
    """A piece of what is asked."""

    type: Literal["input_text"]
    text: Text
    prompt_cache_breakpoint: Annotated[Any, BOOKKEEPING] = None


class OutputText(WirePart):
    """A piece of what the model said."""

    type: Literal["output_text"]
    text: Text
    annotations: Annotated[Any, BOOKKEEPING] = None
    logprobs: Annotated[Any, BOOKKEEPING] = None


class Refusal(WirePart):
    """What an assistant would not do."""

    type: Literal["refusal"]
    refusal: Text


class OtherPart(Unsupported):
    """A part that is no text."""

    type: Literal["input_image", "input_file", "input_audio"]


MessagePart = Annotated[
    Annotated[InputText, tagged("input_text")]
    | Annotated[OutputText, tagged("output_text")]
    | Annotated[Refusal, tagged("refusal")]
    | Annotated[OtherPart, OTHERS],
    by_type("input_text", "output_text", "refusal"),
]
ResultPart = Annotated[Annotated[InputText, tagged("input_text")] | Annotated[OtherPart, OTHERS], by_type("input_text")]


class MessageItem(WirePart):
    """What somebody says."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: TextOr[MessagePart]
    id: Annotated[Any, BOOKKEEPING] = None
    status: Annotated[Any, BOOKKEEPING] = None
    phase: Annotated[Any, BOOKKEEPING] = None


class CallItem(WirePart):
    """A call of a function that the model made."""

    type: Literal["function_call"]
    call_id: _ID
    name: str
    arguments: Text
    id: Annotated[Any, BOOKKEEPING] = None
    status: Annotated[Any, BOOKKEEPING] = None
    caller: Annotated[Any, BOOKKEEPING] = None
    namespace: Annotated[Any, refused("functions have none")] = None
    async_: Annotated[Any, refused("calls are waited for", False)] = Field(default=None, alias="async")


class ResultItem(WirePart):
    """What a function gave back."""

    type: Literal["function_call_output"]
    call_id: _ID
    output: TextOr[ResultPart]
    name: str | None = None
    id: Annotated[Any, BOOKKEEPING] = None
    status: Annotated[Any, BOOKKEEPING] = None
    caller: Annotated[Any, BOOKKEEPING] = None
    namespace: Annotated[Any, refused("functions have none")] = None


class SummaryText(WirePart):
    """A piece of a summary of thoughts."""

    type: Literal["summary_text"]
    text: Text


class ReasoningText(WirePart):
    """A piece of thoughts."""

    type: Literal["reasoning_text"]
    text: Text


class ThoughtItem(WirePart):
    """What the model thought before it went on."""

    type: Literal["reasoning"]
    summary: Annotated[list[SummaryText], Field(max_length=10_000)] | None = None
    content: Annotated[list[ReasoningText], Field(max_length=10_000)] | None = None
    id: Annotated[Any, BOOKKEEPING] = None
    status: Annotated[Any, BOOKKEEPING] = None
    encrypted_content: Annotated[Any, refused("only who wrote it can read it", "")] = None


class OtherItem(Unsupported):
    """An item that belongs to tools or to a store which this server has not."""

    note: ClassVar[str] = "there are messages, functions and thoughts here, and nothing is stored"
    type: Literal[
        "additional_tools",
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "configuration_update",
        "custom_tool_call",
        "custom_tool_call_output",
        "file_search_call",
        "image_generation_call",
        "item_reference",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    ]


Item = Annotated[
    Annotated[MessageItem, tagged("message")]
    | Annotated[CallItem, tagged("function_call")]
    | Annotated[ResultItem, tagged("function_call_output")]
    | Annotated[ThoughtItem, tagged("reasoning")]
    | Annotated[OtherItem, OTHERS],
    by_type("message", "function_call", "function_call_output", "reasoning", default="message"),
]
