"""The ways in which models write calls, and which of them a model's chat template wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Protocol

from fucina.decoding.grammar.constraint import Constraint
from fucina.engine.wording import Codec, Message
from fucina.errors import TemplateError
from fucina.server.tools.definition import Tool, ToolUse
from fucina.server.tools.hermes import HermesFormat, WrittenHermesFormat
from fucina.server.tools.llama import LlamaFormat
from fucina.server.tools.parser import CallParser, new_call_id
from fucina.text.template import ChatTemplate

_PROBE = "fucina_probe"
_HIDDEN = ("<tool_call>", "</tool_call>", "<|python_tag|>")


class CallFormat(Protocol):
    """How a model is told of tools, and how it calls them."""

    def messages(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Message], list[dict[str, object]] | None]:
        """Give what a chat template takes: messages, and descriptions of tools or None. Raises ConfigError.

        Earlier calls and their results are written out also where no tool is offered any more.
        """

    def constraint(self, use: ToolUse) -> Constraint | None:
        """Give what holds an answer to its tools: None where the model may write what it likes. Raises ConfigError."""

    def parser(self, use: ToolUse, new_id: Callable[[], str] = new_call_id) -> CallParser:
        """Start to read an answer; `new_id` gives each call its id."""


def call_format(template: ChatTemplate | None) -> CallFormat:
    """Find the format of a chat template by having it write a call; one that knows of none gets hermes, written out."""
    if template is None or not template.exists or not _takes_tools(template):
        return WrittenHermesFormat()
    written = _written(template, 1)
    if "<tool_call>" in written and _holds_call(written, "arguments"):
        return HermesFormat()
    if _holds_call(written, "parameters"):
        return LlamaFormat(one_call_a_message=not _written(template, 2))
    return WrittenHermesFormat()


def hidden_markers(tokenizer: Codec) -> dict[int, str]:
    """Give the tokens that stand for a marker of a call and say nothing in the text of an answer.

    A parser must be fed the marker before the text of such a token.
    """
    found: dict[int, str] = {}
    for marker in _HIDDEN:
        ids = tokenizer.encode(marker, special=True)
        if len(ids) == 1 and not tokenizer.decode(ids):
            found[ids[0]] = marker
    return found


_TOOLS = [Tool(_PROBE, "A probe.").described()]


def _takes_tools(template: ChatTemplate) -> bool:
    try:
        return _PROBE in template.render([{"role": "user", "content": "."}], tools=_TOOLS)
    except TemplateError:
        return False


def _written(template: ChatTemplate, n_calls: int) -> str:
    """What a template writes of a message with so many calls, nothing where it refuses."""
    call = {"type": "function", "function": {"name": _PROBE, "arguments": {"key": "value"}}}
    calls = [{**call, "id": f"call{i:05}"} for i in range(n_calls)]
    results = [{"role": "tool", "tool_call_id": call["id"], "name": _PROBE, "content": "."} for call in calls]
    asked: Message = {"role": "user", "content": "."}
    try:
        return template.render(
            [asked, {"role": "assistant", "content": "", "tool_calls": calls}, *results], add_generation_prompt=False
        )
    except TemplateError:
        return ""


def _holds_call(written: str, arguments_name: str) -> bool:
    """Whether a call stands there as one JSON object."""
    decoder = json.JSONDecoder()
    at = written.find("{")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(written, at)
        except ValueError:
            value = None
        if isinstance(value, dict) and value.get("name") == _PROBE and value.get(arguments_name) == {"key": "value"}:
            return True
        at = written.find("{", at + 1)
    return False
