"""OpenAI's responses: https://platform.openai.com/docs/api-reference/responses."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from fucina.server.wire.contents import OTHERS, WORDS, Text, TextOr, Unsupported, by_type, tagged
from fucina.server.wire.fields import BOOKKEEPING, Count, WirePart, WireRequest, refused, unsupported
from fucina.server.wire.response_items import Item
from fucina.server.wire.sampling import AnyJsonFormat, SamplingFields, Schema, TextFormat

_NAME = r"^[a-zA-Z0-9_-]{1,64}$"


class FunctionTool(WirePart):
    """A function that the model may call."""

    type: Literal["function"]
    name: Annotated[str, Field(pattern=_NAME)]
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None
    async_: Annotated[Any, refused("calls are waited for", False)] = Field(default=None, alias="async")
    allowed_callers: Annotated[Any, refused("only the model itself calls", ["direct"])] = None
    defer_loading: Annotated[Any, refused("the model is told of all tools at once", False)] = None
    output_schema: Annotated[Any, refused("results are not checked")] = None


class OtherTool(Unsupported):
    """A tool that the vendor runs."""

    note: ClassVar[str] = "there are functions here, no tools of the server's own"
    type: Literal[
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use_preview",
        "custom",
        "file_search",
        "image_generation",
        "local_shell",
        "mcp",
        "namespace",
        "programmatic_tool_calling",
        "shell",
        "tool_search",
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    ]


ResponseTool = Annotated[
    Annotated[FunctionTool, tagged("function")] | Annotated[OtherTool, OTHERS], by_type("function")
]


class FunctionName(WirePart):
    """One function."""

    type: Literal["function"]
    name: str


class AllowedTools(WirePart):
    """Only these functions may be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[FunctionName], Field(min_length=1, max_length=128)]


class OtherChoice(Unsupported):
    """A choice among tools that the vendor runs."""

    note: ClassVar[str] = "there are functions here, no tools of the server's own"
    type: str


ToolChoiceField = Annotated[
    Annotated[Literal["none", "auto", "required"], WORDS]
    | Annotated[FunctionName, tagged("function")]
    | Annotated[AllowedTools, tagged("allowed_tools")]
    | Annotated[OtherChoice, OTHERS],
    by_type("function", "allowed_tools", has_words=True),
]


class NamedFormat(WirePart):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    name: Annotated[str, Field(pattern=_NAME)]
    schema_: Schema = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextOptions(WirePart):
    """How the text of an answer is to be."""

    format: Annotated[TextFormat | AnyJsonFormat | NamedFormat, Field(discriminator="type")] | None = None
    verbosity: Annotated[Any, refused("models here have no such switch", "medium")] = None


class ReasoningOptions(WirePart):
    """How much the model is to think, and whether its thoughts are told as a summary, which is all of them."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "detailed"] | None = None
    generate_summary: Annotated[Any, refused("use summary")] = None
    context: Annotated[Any, refused("the template says what is kept of thoughts", "auto")] = None
    mode: Annotated[Any, refused("there is one", "standard")] = None


class ResponseStreamOptions(WirePart):
    """What a stream holds besides the answer."""

    include_obfuscation: Annotated[bool | None, BOOKKEEPING] = None


_LOGPROBS, _ENCRYPTED = "message.output_text.logprobs", "reasoning.encrypted_content"
_NOTHING_OF = (  # what only tools and images have, of which there are none: nothing is left out
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
)


def _includable(wanted: str) -> str:
    if wanted == _ENCRYPTED:
        raise unsupported(wanted, "thoughts are told openly")
    if wanted != _LOGPROBS and wanted not in _NOTHING_OF:
        raise PydanticCustomError("include", "there is no such thing to include")
    return wanted


Include = Annotated[str, AfterValidator(_includable), WithJsonSchema({"enum": [_LOGPROBS, *_NOTHING_OF]})]


class ResponsesRequest(SamplingFields, WireRequest):
    """A question to the model, as items."""

    model: Annotated[str, Field(max_length=512)]
    input: TextOr[Item]
    instructions: Text | None = None
    max_output_tokens: Count | None = None
    stream: bool | None = None
    stream_options: Annotated[ResponseStreamOptions | None, BOOKKEEPING] = None
    text: TextOptions | None = None
    tools: Annotated[list[ResponseTool], Field(max_length=128)] | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    include: Annotated[list[Include], Field(max_length=16)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    metadata: Annotated[dict[str, str] | None, BOOKKEEPING] = None
    background_options: Annotated[Any, BOOKKEEPING] = None
    max_tool_calls: Annotated[int | None, BOOKKEEPING] = None
    prompt_cache_key: Annotated[str | None, BOOKKEEPING] = None
    prompt_cache_options: Annotated[Any, BOOKKEEPING] = None
    prompt_cache_retention: Annotated[str | None, BOOKKEEPING] = None
    safety_identifier: Annotated[str | None, BOOKKEEPING] = None
    service_tier: Annotated[str | None, BOOKKEEPING] = None
    store: Annotated[bool | None, BOOKKEEPING] = None
    user: Annotated[str | None, BOOKKEEPING] = None
    access_programs: Annotated[Any, refused("there are none")] = None
    background: Annotated[Any, refused("answers are waited for", False)] = None
    context_management: Annotated[Any, refused("nothing of a conversation is left out", [])] = None
    conversation: Annotated[Any, refused("nothing is stored: send the items")] = None
    image: Annotated[Any, refused("models here read text")] = None
    moderation: Annotated[Any, refused("nothing is moderated")] = None
    previous_response_id: Annotated[Any, refused("nothing is stored: send the items")] = None
    prompt: Annotated[Any, refused("there are no stored prompts")] = None
    truncation: Annotated[Any, refused("nothing of a conversation is left out", "disabled")] = None

    @property
    def n_logprobs(self) -> int | None:
        """Alternatives to tell of each token of the text, None for no probabilities at all."""
        is_asked = self.top_logprobs is not None or _LOGPROBS in (self.include or ())
        return (self.top_logprobs or 0) if is_asked else None

    @property
    def functions(self) -> list[FunctionTool]:
        """The functions that the model may call."""
        return [tool for tool in self.tools or () if isinstance(tool, FunctionTool)]
