"""Messages that tell of calls and their results, in the form that a chat template takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fucina.engine.wording import Message
from fucina.errors import ConfigError
from fucina.server.tools.json_objects import SPACE, parsed_object


def with_mappings(messages: Sequence[Message]) -> list[Message]:
    """Give messages whose calls have their arguments as mappings, not as JSON text.

    Raises ConfigError naming the message whose calls are none.
    """
    return [_with_mappings(message, f"messages[{i}]") for i, message in enumerate(messages)]


def calls_of(message: Message, path: str) -> list[tuple[str, str, Mapping[str, object]]]:
    """Give the calls of a message: their names, the JSON text of their arguments, and those read. Raises ConfigError.

    The text is the client's own where it sent text, so that what a model wrote comes back to it as it was.
    """
    listed = message.get("tool_calls") or ()
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise ConfigError(f"{path}.tool_calls", got=listed, expected="a list of calls")
    return [_call(call, f"{path}.tool_calls[{i}]") for i, call in enumerate(listed)]


def text_of(content: object, path: str) -> str:
    """Give the text of a message's content: text, a list of parts with text, or nothing. Raises ConfigError."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{path}.content", got=content, expected="text, or parts with text")
    return "\n".join(map(str, texts))


def _with_mappings(message: Message, path: str) -> Message:
    if not message.get("tool_calls"):
        return message
    listed = message["tool_calls"]
    calls = calls_of(message, path)
    assert isinstance(listed, Sequence)
    return {
        **message,
        "tool_calls": [
            {**given, "type": "function", "function": {"name": name, "arguments": arguments}}
            for given, (name, _, arguments) in zip(listed, calls, strict=True)
        ],
    }


def _call(call: object, path: str) -> tuple[str, str, Mapping[str, object]]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise ConfigError(path, got=call, expected="a call with a function that has a name and arguments")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{path}.function.name", got=name, expected="the name of a function")
    if isinstance(arguments, Mapping):
        return name, json.dumps(arguments, ensure_ascii=False), arguments
    text = "{}" if arguments is None or arguments == "" else arguments
    parsed = parsed_object(text) if isinstance(text, str) else None
    if parsed is None:
        raise ConfigError(f"{path}.function.arguments", got=arguments, expected="a JSON object as text")
    return name, text.strip(SPACE), parsed
