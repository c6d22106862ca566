"""Items of OpenAI's responses as a chat template takes them: messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fucina.engine.wording import Message
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


def item_messages(instructions: str | None, given: str | Sequence[Item]) -> list[Message]:
    """The messages that items stand for. Thoughts, words and calls in a row are one message of the model's."""
    written: list[dict[str, Any]] = []
    if instructions:
        written.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return [*written, {"role": "user", "content": given}]
    for item in given:
        _add(written, item)
    return list(written)


def _add(written: list[dict[str, Any]], item: Item) -> None:
    match item:
        case MessageItem(role="assistant"):
            _own(written, "content", "tool_calls")["content"] = _text(item.content)
        case MessageItem():
            _say(written, "user" if item.role == "user" else "system", _text(item.content))
        case CallItem():
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
