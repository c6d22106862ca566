"""OpenAI's chat completions: https://platform.openai.com/docs/api-reference/chat."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fucina.server.wire.contents import OTHERS, WORDS, Text, TextOr, Unsupported, by_type, tagged
from fucina.server.wire.fields import BOOKKEEPING, Count, WirePart, WireRequest, refused
from fucina.server.wire.sampling import FormFields, SamplingFields, Schema


class TextPart(WirePart):
    """A piece of text."""

    type: Literal["text"]
    text: Text
    cache_control: Annotated[Any, BOOKKEEPING] = None
    prompt_cache_breakpoint: Annotated[Any, BOOKKEEPING] = None


class RefusalPart(WirePart):
    """What an assistant would not do."""

    type: Literal["refusal"]
    refusal: Text


class OtherPart(Unsupported):
    """What is no text."""

    type: Literal["image_url", "input_audio", "file"]


UserPart = Annotated[Annotated[TextPart, tagged("text")] | Annotated[OtherPart, OTHERS], by_type("text")]
AssistantPart = Annotated[
    Annotated[TextPart, tagged("text")] | Annotated[RefusalPart, tagged("refusal")], by_type("text", "refusal")
]


class FunctionCall(WirePart):
    """A function and its arguments, as JSON text."""

    name: str
    arguments: Text


class ToolCall(WirePart):
    """A call that an assistant made."""

    id: Annotated[str, Field(max_length=256)]
    type: Literal["function"] = "function"
    function: FunctionCall
    index: int | None = None


class SystemMessage(WirePart):
    """What holds for the whole conversation."""

    role: Literal["system", "developer"]
    content: TextOr[TextPart]
    name: str | None = None


class UserMessage(WirePart):
    """What the user says."""

    role: Literal["user"]
    content: TextOr[UserPart]
    name: str | None = None


class AssistantMessage(WirePart):
    """What the model said."""

    role: Literal["assistant"]
    content: TextOr[AssistantPart] | None = None
    refusal: Text | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128)] | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    annotations: Annotated[Any, BOOKKEEPING] = None
    audio: Annotated[Any, refused("there is no audio")] = None
    function_call: Annotated[Any, refused("use tool_calls")] = None


class ToolMessage(WirePart):
    """What a tool gave back."""

    role: Literal["tool"]
    content: TextOr[TextPart]
    tool_call_id: Annotated[str, Field(max_length=256)]
    name: str | None = None


ChatMessage = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage,
    Field(discriminator="role"),
]


class FunctionDefinition(WirePart):
    """A function that the model may call."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class ToolDefinition(WirePart):
    """A tool that the model may use."""

    type: Literal["function"]
    function: FunctionDefinition


class FunctionName(WirePart):
    """One function."""

    name: str


class NamedChoice(WirePart):
    """This function must be called."""

    type: Literal["function"]
    function: FunctionName


ToolChoiceField = Annotated[
    Annotated[Literal["none", "auto", "required"], WORDS] | Annotated[NamedChoice, tagged("function")],
    by_type("function", has_words=True),
]


class StreamOptions(WirePart):
    """What a stream holds besides the answer."""

    include_usage: bool | None = None
    include_obfuscation: Annotated[bool | None, BOOKKEEPING] = None


class Prediction(WirePart):
    """Text that the answer is likely to repeat: drafts are taken from it."""

    type: Literal["content"]
    content: TextOr[TextPart]


class Switches(WirePart):
    """Variables of the chat template that a request may set."""

    enable_thinking: bool | None = None


References = Annotated[list[Text], Field(max_length=64)]


class ChatRequest(SamplingFields, FormFields, WireRequest):
    """A question to the model, as a conversation."""

    model: Annotated[str, Field(max_length=512)]
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=10_000)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[ToolDefinition], Field(max_length=128)] | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    chat_template_kwargs: Annotated[Switches | None, Field(description="What the model's template can be told.")] = None
    prediction: Prediction | None = None
    references: Annotated[
        References | None, Field(description="Texts that the answer may quote: drafts are taken from them.")
    ] = None
    token_details: Annotated[
        bool | None, Field(description="Tell of each token's text, and whether it came from a draft or the grammar.")
    ] = None
    metadata: Annotated[Any, BOOKKEEPING] = None
    prompt_cache_key: Annotated[str | None, BOOKKEEPING] = None
    prompt_cache_retention: Annotated[str | None, BOOKKEEPING] = None
    prompt_cache_options: Annotated[Any, BOOKKEEPING] = None
    safety_identifier: Annotated[str | None, BOOKKEEPING] = None
    service_tier: Annotated[str | None, BOOKKEEPING] = None
    store: Annotated[bool | None, BOOKKEEPING] = None
    user: Annotated[str | None, BOOKKEEPING] = None
    audio: Annotated[Any, refused("there is no audio")] = None
    modalities: Annotated[Any, refused("answers are text", ["text"])] = None
    moderation: Annotated[Any, refused("nothing is moderated")] = None
    functions: Annotated[Any, refused("use tools")] = None
    function_call: Annotated[Any, refused("use tool_choice")] = None
    web_search_options: Annotated[Any, refused("there is no web search")] = None
    verbosity: Annotated[Any, refused("models here have no such switch", "medium")] = None
    chat_template: Annotated[Any, refused("a request cannot bring its own template")] = None
    suffix: Annotated[Any, refused("chats have none")] = None
    echo: Annotated[Any, refused("chats have none", False)] = None
    best_of: Annotated[Any, refused("ask for n choices", 1)] = None
    add_generation_prompt: Annotated[Any, refused("an answer is always begun", True)] = None
