"""Calls in the style of Llama 3: an answer that is a JSON object with a name and parameters, or several of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from fucina.decoding.grammar.constraint import Constraint
from fucina.engine.wording import Message
from fucina.server.tools.definition import Tool, ToolUse
from fucina.server.tools.grammars import functions, json_lark, lark
from fucina.server.tools.history import with_mappings
from fucina.server.tools.json_objects import SPACE
from fucina.server.tools.parser import CallParser, new_call_id

_TAG = "<|python_tag|>"
_BEGINNINGS = tuple(f'{{"{name}"' for name in ("name", "type", "parameters", "arguments"))
_SPACES = re.compile(f"[{SPACE}]")


class LlamaFormat:
    """A `CallFormat` for Llama's templates. Forced answers are one call: the format has no way to write several."""

    def __init__(self, *, one_call_a_message: bool = True) -> None:
        """`one_call_a_message`: the template refuses messages with several calls, so they are taken apart for it."""
        self._one_call_a_message = one_call_a_message

    def messages(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Message], list[dict[str, object]] | None]:
        """Give what the template takes. Raises ConfigError naming a message whose calls are none."""
        found = with_mappings(messages)
        if self._one_call_a_message:
            found = _one_call_each(found)
        return found, [tool.described() for tool in tools] or None

    def constraint(self, use: ToolUse) -> Constraint | None:
        """Give a grammar of one call where that is forced, or of text or a call where a tool is strict."""
        if not use.is_guarded:
            return None
        rules = functions(use.callable, "parameters", only_strict=not use.choice.is_forced)
        if use.choice.is_forced:
            return json_lark("start: function", rules)
        # what begins like an object is a call
        return lark("start: TEXT? | function", r"TEXT: /[ \t\r\n]*([^{ \t\r\n](.|\n)*)?/", rules)

    def parser(self, use: ToolUse, new_id: Callable[[], str] = new_call_id) -> CallParser:
        """Start to read an answer."""
        names = [tool.name for tool in use.callable]
        return LlamaParser(names, is_forced=use.choice.is_forced, parallel=use.parallel, new_id=new_id)


def _one_call_each(messages: Sequence[Message]) -> list[Message]:
    """Messages with one call at most, each followed by its result, where they had several and then their results."""
    found: list[Message] = []
    at = 0
    while at < len(messages):
        message, at = messages[at], at + 1
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or len(calls) < 2:
            found.append(message)
            continue
        results: list[Message] = []
        while at < len(messages) and messages[at].get("role") == "tool":
            results.append(messages[at])
            at += 1
        for i, call in enumerate(calls):
            own = _results_of(call, results, is_last=i + 1 == len(calls))
            results = [result for result in results if result not in own]
            found += [{**message, "content": message.get("content") if i == 0 else "", "tool_calls": [call]}, *own]
    return found


def _results_of(call: Mapping[str, object], results: Sequence[Message], *, is_last: bool) -> list[Message]:
    """The results that belong to a call: by its id, or all that are left for the last one."""
    if is_last:
        return list(results)
    return [result for result in results if result.get("tool_call_id") == call.get("id")]


class LlamaParser(CallParser):
    """Reads calls at the beginning of an answer, maybe behind <|python_tag|>, and behind each other."""

    closing = ""

    def _seek(self) -> bool:
        rest = self._buffer.lstrip(SPACE)
        if rest.startswith(_TAG):
            rest = rest[len(_TAG) :].lstrip(SPACE)
        elif _TAG.startswith(rest):
            return self._wait()
        if not rest:
            return self._wait()
        return self._enter(len(self._buffer) - len(rest)) if rest[0] == "{" else self._reject()

    def _behind_call(self) -> bool:
        rest = self._buffer.lstrip(SPACE)
        following = rest[1:].lstrip(SPACE) if rest.startswith(";") else rest
        if following.startswith("{"):
            return self._enter(len(self._buffer) - len(following))
        if following or self._final:
            self._buffer = rest
            return self._reject()
        return False

    def _reject(self) -> bool:
        return self._to_plain()

    def _may_begin(self, body: str) -> bool:
        compact = _SPACES.sub("", body)
        return any(compact.startswith(begin) or begin.startswith(compact) for begin in _BEGINNINGS)
