"""Messages and tools of OpenAI's chat as the rest of the server takes them."""

from __future__ import annotations

from collections.abc import Sequence

from fucina.engine.wording import Message
from fucina.server.tools.definition import Tool, ToolChoice, ToolUse
from fucina.server.wire.chat import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    NamedChoice,
    OtherPart,
    RefusalPart,
    TextPart,
    ToolDefinition,
    ToolMessage,
)


def chat_messages(messages: Sequence[ChatMessage]) -> list[Message]:
    """The messages, with nothing in them but roles, texts and calls."""
    return [_message(message) for message in messages]


def _message(message: ChatMessage) -> dict[str, object]:
    role = "system" if message.role == "developer" else message.role
    written: dict[str, object] = {"role": role, "content": _text(message.content)}
    if message.name is not None:
        written["name"] = message.name
    if isinstance(message, ToolMessage):
        written["tool_call_id"] = message.tool_call_id
    elif isinstance(message, AssistantMessage):
        reasoning = message.reasoning_content if message.reasoning_content is not None else message.reasoning
        if reasoning is not None:
            written["reasoning_content"] = reasoning
        if message.refusal is not None and not written["content"]:
            written["content"] = message.refusal
        if message.tool_calls:
            written["tool_calls"] = [
                {"id": call.id, "type": "function", "function": call.function.model_dump()}
                for call in message.tool_calls
            ]
    return written


def _text(content: str | Sequence[TextPart | RefusalPart | OtherPart] | None) -> str:
    """Content as one text; its parts are lines of it."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        match part:
            case TextPart():
                texts.append(part.text)
            case RefusalPart():
                texts.append(part.refusal)
    return "\n".join(texts)


def tool_use(body: ChatRequest) -> ToolUse:
    """What a request says of tools. Raises ConfigError."""
    choice = body.tool_choice
    if isinstance(choice, NamedChoice):
        chosen = ToolChoice.named(choice.function.name)
    else:
        chosen = ToolChoice(choice if choice is not None else "auto")
    return ToolUse(tools_of(body.tools), chosen, body.parallel_tool_calls is not False)


def tools_of(definitions: Sequence[ToolDefinition] | None) -> tuple[Tool, ...]:
    """The tools that a request offers. Raises ConfigError."""
    return tuple(
        Tool(
            tool.function.name,
            tool.function.description,
            tool.function.parameters,
            bool(tool.function.strict),
            path=f"tools[{i}].function",
        )
        for i, tool in enumerate(definitions or ())
    )
