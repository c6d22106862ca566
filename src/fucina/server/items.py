"""Items and tools of OpenAI's responses as the rest of the server takes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fucina.engine.wording import Message
from fucina.errors import ConfigError
from fucina.server.failures import ApiError
from fucina.server.tools.definition import Tool, ToolChoice, ToolUse
from fucina.server.wire.response_items import (
    CallItem,
    InputText,
    Item,
    MessageItem,
    MessagePart,
    OtherItem,
    OutputText,
    Refusal,
    ResultItem,
    ResultPart,
    ThoughtItem,
)
from fucina.server.wire.responses import AllowedTools, FunctionName, ResponsesRequest


def item_messages(instructions: str | None, given: str | Sequence[Item]) -> list[Message]:
    """The messages that items stand for. Thoughts, words and calls in a row are one message of the model's.

    Raises ApiError for a call whose arguments are none, and where nothing is said at all.
    """
    written: list[dict[str, Any]] = []
    if instructions:
        written.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return [*written, {"role": "user", "content": given}]
    for i, item in enumerate(given):
        _add(written, item, f"input[{i}]")
    if not written:
        raise ApiError(400, "there is nothing to answer", code="invalid_value", param="input")
    return list(written)


def _add(written: list[dict[str, Any]], item: Item, path: str) -> None:
    match item:
        case MessageItem(role="assistant"):
            _own(written, "content", "tool_calls")["content"] = _text(item.content)
        case MessageItem():
            _say(written, "user" if item.role == "user" else "system", _text(item.content))
        case CallItem():
            _check_arguments(item.arguments, f"{path}.arguments")
            function = {"name": item.name, "arguments": item.arguments}
            calls = _own(written).setdefault("tool_calls", [])
            calls.append({"id": item.call_id, "type": "function", "function": function})
        case ResultItem():
            result = {"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)}
            written.append(result if item.name is None else result | {"name": item.name})
        case ThoughtItem():
            thoughts = "\n".join(part.text for part in item.content or item.summary or ())
            if thoughts:
                _own(written, "reasoning_content", "content", "tool_calls")["reasoning_content"] = thoughts
        case OtherItem():
            raise AssertionError("refused when the request was read")


def _check_arguments(arguments: str, path: str) -> None:
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise ApiError(400, f"{path}: it must be the text of a JSON object", code="invalid_value", param=path)


def _say(written: list[dict[str, Any]], role: str, text: str) -> None:
    """Add a message; instructions in a row are one, as templates take one."""
    if role == "system" and written and written[-1]["role"] == "system":
        written[-1]["content"] += f"\n\n{text}"
    else:
        written.append({"role": role, "content": text})


def _own(written: list[dict[str, Any]], *new: str) -> dict[str, Any]:
    """The model's message that an item belongs to: the last one, if it has none of `new` yet."""
    last = written[-1] if written else {}
    if last.get("role") != "assistant" or any(last.get(field) for field in new):
        written.append({"role": "assistant", "content": ""})
    return written[-1]


def _text(content: str | Sequence[MessagePart] | Sequence[ResultPart]) -> str:
    """Content as one text; its parts are lines of it."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        match part:
            case InputText() | OutputText():
                texts.append(part.text)
            case Refusal():
                texts.append(part.refusal)
    return "\n".join(texts)


def function_use(body: ResponsesRequest) -> ToolUse:
    """What a request says of tools. Raises ConfigError."""
    tools = [
        Tool(tool.name, tool.description, tool.parameters, bool(tool.strict), path=f"tools[{i}]")
        for i, tool in enumerate(body.functions)
    ]
    choice, chosen = body.tool_choice, ToolChoice()
    if isinstance(choice, str):
        chosen = ToolChoice(choice)
    elif isinstance(choice, FunctionName):
        chosen = ToolChoice.named(choice.name)
    elif isinstance(choice, AllowedTools):
        tools, chosen = _allowed(tools, choice), ToolChoice(choice.mode)
    return ToolUse(tuple(tools), chosen, body.parallel_tool_calls is not False)


def _allowed(tools: Sequence[Tool], choice: AllowedTools) -> list[Tool]:
    """The tools among which a request chooses: the model is told of no others."""
    known = {tool.name: tool for tool in tools}
    for i, wanted in enumerate(choice.tools):
        if wanted.name not in known:
            raise ConfigError(f"tool_choice.tools[{i}].name", got=wanted.name, expected="the name of one of the tools")
    names = {wanted.name for wanted in choice.tools}
    return [tool for tool in tools if tool.name in names]
