"""Anthropic's messages: https://docs.anthropic.com/en/api/messages."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fucina.server.wire.contents import OTHERS, Text, TextOr, Unsupported, by_type, tagged
from fucina.server.wire.fields import (
    BOOKKEEPING,
    Count,
    Probability,
    Seed,
    Temperature,
    WirePart,
    WireReply,
    WireRequest,
    refused,
)
from fucina.server.wire.sampling import Salt, Schema, StopText

_ID = Annotated[str, Field(max_length=256)]


class TextBlock(WirePart):
    """A piece of text."""

    type: Literal["text"]
    text: Text
    cache_control: Annotated[Any, BOOKKEEPING] = None
    citations: Annotated[Any, BOOKKEEPING] = None


class OtherBlock(Unsupported):
    """A block that is no text, or belongs to tools of the vendor's."""

    type: Literal[
        "bash_code_execution_tool_result",
        "browser_state",
        "code_execution_tool_result",
        "container_upload",
        "document",
        "image",
        "mcp_tool_result",
        "mcp_tool_use",
        "redacted_thinking",
        "search_result",
        "server_tool_use",
        "text_editor_code_execution_tool_result",
        "tool_reference",
        "tool_search_tool_result",
        "web_fetch_tool_result",
        "web_search_tool_result",
    ]


ResultBlock = Annotated[Annotated[TextBlock, tagged("text")] | Annotated[OtherBlock, OTHERS], by_type("text")]


class ToolUseBlock(WirePart):
    """A call of a tool that the model made."""

    type: Literal["tool_use"]
    id: _ID
    name: str
    input: Schema
    cache_control: Annotated[Any, BOOKKEEPING] = None
    caller: Annotated[Any, BOOKKEEPING] = None
    toolset_name: Annotated[Any, refused("there are no toolsets")] = None


class ToolResultBlock(WirePart):
    """What a tool gave back."""

    type: Literal["tool_result"]
    tool_use_id: _ID
    content: TextOr[ResultBlock] | None = None
    is_error: bool | None = None
    cache_control: Annotated[Any, BOOKKEEPING] = None
    toolset_name: Annotated[Any, refused("there are no toolsets")] = None


class ThinkingBlock(WirePart):
    """What the model thought before it went on."""

    type: Literal["thinking"]
    thinking: Text
    signature: Annotated[Any, BOOKKEEPING] = None


UserBlock = Annotated[
    Annotated[TextBlock, tagged("text")]
    | Annotated[ToolResultBlock, tagged("tool_result")]
    | Annotated[OtherBlock, OTHERS],
    by_type("text", "tool_result"),
]
AssistantBlock = Annotated[
    Annotated[TextBlock, tagged("text")]
    | Annotated[ToolUseBlock, tagged("tool_use")]
    | Annotated[ThinkingBlock, tagged("thinking")]
    | Annotated[OtherBlock, OTHERS],
    by_type("text", "tool_use", "thinking"),
]


class UserTurn(WirePart):
    """What the user says, and what tools gave back."""

    role: Literal["user"]
    content: TextOr[UserBlock]


class AssistantTurn(WirePart):
    """What the model said."""

    role: Literal["assistant"]
    content: TextOr[AssistantBlock]


class SystemTurn(WirePart):
    """What holds from here on."""

    role: Literal["system"]
    content: TextOr[ResultBlock]


Turn = Annotated[UserTurn | AssistantTurn | SystemTurn, Field(discriminator="role")]


class CustomTool(WirePart):
    """A tool that the model may use."""

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    input_schema: Schema
    strict: bool | None = None
    cache_control: Annotated[Any, BOOKKEEPING] = None
    eager_input_streaming: Annotated[Any, BOOKKEEPING] = None
    allowed_callers: Annotated[Any, refused("only the model itself calls", ["direct"])] = None
    defer_loading: Annotated[Any, refused("the model is told of all tools at once", False)] = None
    input_examples: Annotated[Any, refused("templates have no place for them", [])] = None


class OtherTool(Unsupported):
    """A tool of the vendor's."""

    note: ClassVar[str] = "there are tools with an input_schema here, none that the server knows itself"
    type: Annotated[str, Field(pattern=r"^[a-z_]+_[0-9]{8}$|^mcp_toolset$")]


AnyTool = Annotated[
    Annotated[CustomTool, tagged("custom")] | Annotated[OtherTool, OTHERS], by_type("custom", default="custom")
]


class ToolChoice(WirePart):
    """Whether tools must be used: `any` of them, one `tool`, as the model likes (`auto`), or not."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(WirePart):
    """Whether the model is to think first."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[Count | None, Field(description="A wish: thoughts are not cut off.")] = None
    display: Annotated[Any, refused("thoughts are told as they are", "summarized")] = None


class JsonFormat(WirePart):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    schema_: Schema = Field(alias="schema")


class OutputConfig(WirePart):
    """How an answer is to be."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class TurnsRequest(WireRequest):
    """A conversation."""

    model: Annotated[str, Field(max_length=512)]
    messages: Annotated[list[Turn], Field(min_length=1, max_length=100_000)]
    system: TextOr[ResultBlock] | None = None
    tools: Annotated[list[AnyTool], Field(max_length=128)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: Annotated[Any, BOOKKEEPING] = None
    speed: Annotated[str | None, BOOKKEEPING] = None
    user_profile_id: Annotated[str | None, BOOKKEEPING] = None
    workspace_id: Annotated[str | None, BOOKKEEPING] = None
    context_management: Annotated[Any, refused("nothing of a conversation is left out")] = None
    mcp_servers: Annotated[Any, refused("the server calls no tools", [])] = None


class MessagesRequest(TurnsRequest):
    """A conversation that is to be answered."""

    max_tokens: Count
    stream: bool | None = None
    stop_sequences: Annotated[list[StopText], Field(max_length=64)] | None = None
    temperature: Annotated[Temperature | None, Field(description="0 always takes the likeliest token.")] = None
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1, description="0 and -1 keep all.")] | None = None
    seed: Annotated[Seed | None, Field(description="The same seed gives the same answer, whatever else runs.")] = None
    cache_salt: Annotated[Salt | None, Field(description="Who has the same may share what is cached and learned.")] = (
        None
    )
    metadata: Annotated[Any, BOOKKEEPING] = None
    service_tier: Annotated[str | None, BOOKKEEPING] = None
    inference_geo: Annotated[str | None, BOOKKEEPING] = None
    diagnostics: Annotated[Any, BOOKKEEPING] = None
    billing_policy: Annotated[Any, BOOKKEEPING] = None
    fallback_credit_token: Annotated[Any, BOOKKEEPING] = None
    compaction: Annotated[Any, refused("nothing of a conversation is left out")] = None
    container: Annotated[Any, refused("there is no code execution")] = None
    fallbacks: Annotated[Any, refused("there is one model", [])] = None
    thread: Annotated[Any, refused("nothing is stored")] = None


class CountRequest(TurnsRequest):
    """A conversation whose tokens are to be counted."""


class CountReply(WireReply):
    """How many tokens a conversation has."""

    input_tokens: int
