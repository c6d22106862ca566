"""Turns and tools of Anthropic's messages as the rest of the server takes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from fucina.engine.wording import Message
from fucina.server.failures import ApiError
from fucina.server.tools.definition import Mode, Tool, ToolChoice, ToolUse
from fucina.server.wire.messages import (
    AssistantBlock,
    CustomTool,
    ResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
    TurnsRequest,
    UserBlock,
)


def turn_messages(body: TurnsRequest) -> list[Message]:
    """The messages of a conversation; turns of one role in a row are one.

    Raises ApiError for one that says nothing, or ends with the beginning of an answer.
    """
    if body.messages[-1].role == "assistant":
        message = "the last turn is the model's own: it cannot be told how its answer begins"
        raise ApiError(400, message, code="invalid_value", param=f"messages[{len(body.messages) - 1}]")
    written: list[Message] = []
    if body.system:
        written.append({"role": "system", "content": _text(body.system)})
    for role, turns in groupby(body.messages, key=lambda turn: turn.role):
        written += _messages(role, [block for turn in turns for block in _blocks(turn)])
    if not written:
        raise ApiError(400, "there is nothing to answer", code="invalid_value", param="messages")
    return written


def turn_tools(body: TurnsRequest) -> ToolUse:
    """What a request says of tools. Raises ApiError and ConfigError."""
    tools = tuple(
        Tool(
            tool.name,
            tool.description,
            tool.input_schema,
            bool(tool.strict),
            path=f"tools[{i}]",
            parameters_path=f"tools[{i}].input_schema",
        )
        for i, tool in enumerate(body.tools or ())
        if isinstance(tool, CustomTool)
    )
    choice = body.tool_choice
    if choice is None:
        return ToolUse(tools)
    if (choice.name is not None) != (choice.type == "tool"):
        message = "'name' is for the choice 'tool', which must have one"
        raise ApiError(400, message, code="invalid_value", param="tool_choice.name")
    return ToolUse(tools, ToolChoice(_MODES[choice.type], choice.name), not choice.disable_parallel_tool_use)


_MODES: dict[str, Mode] = {"auto": "auto", "any": "required", "tool": "named", "none": "none"}


def _blocks(turn: Turn) -> Sequence[UserBlock | AssistantBlock]:
    content = turn.content
    return [TextBlock(type="text", text=content)] if isinstance(content, str) else content


def _messages(role: str, blocks: Sequence[UserBlock | AssistantBlock]) -> Iterator[Message]:
    """What tools gave back comes first, a message each."""
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _result(block)}
    calls = [_call(block) for block in blocks if isinstance(block, ToolUseBlock)]
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
    texts = [block for block in blocks if isinstance(block, TextBlock)]
    message: dict[str, Any] = {"role": role, "content": _text(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    if texts or calls or thoughts:
        yield message


def _call(block: ToolUseBlock) -> dict[str, object]:
    function = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
    return {"id": block.id, "type": "function", "function": function}


def _result(block: ToolResultBlock) -> str:
    """What a tool gave back; templates have no other place to say that it failed."""
    text = _text(block.content or "")
    return f"Error: {text}" if block.is_error else text


def _text(content: str | Iterable[ResultBlock]) -> str:
    """Content as one text; its blocks are lines of it."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))
