"""Tokens and templates, as llama.cpp's server and vLLM's spell them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, JsonValue

from fucina.server.wire.chat import ChatMessage, Switches, ToolDefinition
from fucina.server.wire.contents import Text
from fucina.server.wire.fields import BOOKKEEPING, WireReply, WireRequest, refused
from fucina.server.wire.sampling import TokenId

ModelName = Annotated[str, Field(max_length=512)]
Messages = Annotated[list[ChatMessage], Field(min_length=1, max_length=10_000)]
Tools = Annotated[list[ToolDefinition], Field(max_length=128)]


def _given(name: str) -> JsonValue:
    return {"required": [name], "properties": {name: {"type": ["string", "array"]}}}


class TokenizeRequest(WireRequest):
    """A text, as `content` or `prompt`, or messages, to be made into tokens; one of them."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_given("content"), _given("prompt"), _given("messages")]})

    model: ModelName | None = None
    content: Annotated[Text | None, Field(description="A text; begin tokens are added only if add_special asks.")] = (
        None
    )
    prompt: Annotated[Text | None, Field(description="A text; begin tokens are added unless told otherwise.")] = None
    messages: Annotated[Messages | None, Field(description="A conversation, as the model's template has it.")] = None
    add_special: bool | None = None
    add_special_tokens: Annotated[bool | None, Field(description="As add_special.")] = None
    parse_special: Annotated[bool | None, Field(description="Markers in a text are tokens: true.")] = None
    with_pieces: Annotated[bool | None, Field(description="Tokens as objects of id and piece.")] = None
    return_token_strs: Annotated[bool | None, Field(description="Give the tokens' texts too, as token_strs.")] = None
    tools: Tools | None = None
    chat_template_kwargs: Switches | None = None
    add_generation_prompt: Annotated[Any, refused("an answer is always begun", True)] = None
    continue_final_message: Annotated[Any, refused("an answer is always begun", False)] = None
    chat_template: Annotated[Any, refused("a request cannot bring its own template")] = None


class Piece(WireReply):
    """A token and its text; the bytes where they are not whole characters."""

    id: int
    piece: str | list[int]


class TokenizeReply(WireReply):
    """Tokens, how many there are, and how many the model takes."""

    tokens: list[int] | list[Piece]
    count: int
    max_model_len: int
    token_strs: list[str] | None = None


class DetokenizeRequest(WireRequest):
    """Tokens to be made into a text."""

    model: ModelName | None = None
    tokens: Annotated[list[TokenId], Field(max_length=1 << 20)]


class DetokenizeReply(WireReply):
    """The text, by both of its names."""

    content: str
    prompt: str


class ApplyTemplateRequest(WireRequest):
    """Messages to be written out."""

    model: ModelName | None = None
    messages: Messages
    tools: Tools | None = None
    chat_template_kwargs: Switches | None = None
    add_generation_prompt: Annotated[Any, refused("an answer is always begun", True)] = None
    chat_template: Annotated[Any, refused("a request cannot bring its own template")] = None
    stream: Annotated[Any, BOOKKEEPING] = None


class ApplyTemplateReply(WireReply):
    """What the model reads. Markers that messages hold as text look like the template's own here; to it they do not."""

    prompt: str
    count: int
