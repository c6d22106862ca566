"""Calls in the style of Hermes and Qwen: JSON objects between markers, several in a row for several calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from fucina.decoding.grammar.constraint import Constraint
from fucina.engine.wording import Message
from fucina.server.tools.definition import Tool, ToolUse
from fucina.server.tools.grammars import MAX_CALLS, functions, json_lark, lark, literal, text_without
from fucina.server.tools.history import calls_of, text_of, with_mappings
from fucina.server.tools.json_objects import SPACE
from fucina.server.tools.parser import CallParser, new_call_id

OPENING, CLOSING = "<tool_call>", "</tool_call>"

_INSTRUCTIONS = """\
# Tools

You can call functions to help with the request. Each is described here by a JSON object in a line of its own:
<tools>
{tools}
</tools>

To call a function, write a JSON object with its name and its arguments between <tool_call> and </tool_call>:
<tool_call>
{{"name": <name of the function>, "arguments": <JSON object of its arguments>}}
</tool_call>"""


class HermesFormat:
    """A `CallFormat` for templates that write it themselves."""

    def messages(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Message], list[dict[str, object]] | None]:
        """Give what the template takes. Raises ConfigError naming a message whose calls are none."""
        return with_mappings(messages), [tool.described() for tool in tools] or None

    def constraint(self, use: ToolUse) -> Constraint | None:
        """Give a grammar of calls where one is forced, or of text and calls where a tool is strict."""
        if not use.is_guarded:
            return None
        rules = functions(use.callable, "arguments", only_strict=not use.choice.is_forced)
        n_more = MAX_CALLS - 1 if use.parallel else 0
        if use.choice.is_forced:
            head = f"{OPENING}\n"
            more = f'("\\n" call){{0,{n_more}}}' if n_more else ""
            return json_lark(
                f"start: call {more}", f"call: {literal(head)} function {literal(chr(10) + CLOSING)}", rules
            )
        more = f'("\\n" {literal(OPENING)} call){{0,{n_more}}}' if n_more else ""
        return lark(
            f"start: TEXT? | to_call call {more}",
            f"to_call[lazy]: /(.|\\n)*{OPENING}/",
            f"call: {literal(chr(10))} function {literal(chr(10) + CLOSING)}",
            f"TEXT: /{text_without(OPENING)}/",
            rules,
        )

    def parser(self, use: ToolUse, new_id: Callable[[], str] = new_call_id) -> CallParser:
        """Start to read an answer."""
        names = [tool.name for tool in use.callable]
        return HermesParser(names, is_forced=use.choice.is_forced, parallel=use.parallel, new_id=new_id)


class WrittenHermesFormat(HermesFormat):
    """A `CallFormat` for templates without tools: everything on them is written out as text of plain messages."""

    def messages(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Message], list[dict[str, object]] | None]:
        """Give plain messages: tools in the system message, results as the user's. Raises ConfigError."""
        written: list[Message] = []
        was_result = False
        for i, message in enumerate(messages):
            path, is_result = f"messages[{i}]", message.get("role") == "tool"
            if is_result:
                result = f"<tool_response>\n{text_of(message.get('content'), path)}\n</tool_response>"
                if was_result:
                    result = f"{written.pop()['content']}\n{result}"
                written.append({"role": "user", "content": result})
            else:
                written.append(_plain(message, path))
            was_result = is_result
        return _with_instructions(written, tools) if tools else written, None


def _plain(message: Message, path: str) -> Message:
    """A message whose calls are part of its text."""
    texts = [
        f'{OPENING}\n{{"name": {json.dumps(name)}, "arguments": {text}}}\n{CLOSING}'
        for name, text, _ in calls_of(message, path)
    ]
    plain = {key: value for key, value in message.items() if key != "tool_calls"}
    if not texts:
        return plain if plain.get("content") is not None else {**plain, "content": ""}
    said = text_of(message.get("content"), path)
    return {**plain, "content": "\n".join([*([said] if said else []), *texts])}


def _with_instructions(messages: list[Message], tools: Sequence[Tool]) -> list[Message]:
    described = "\n".join(json.dumps(tool.described(), ensure_ascii=False) for tool in tools)
    instructions = _INSTRUCTIONS.format(tools=described)
    if messages and messages[0].get("role") in ("system", "developer"):
        system = f"{text_of(messages[0].get('content'), 'messages[0]')}\n\n{instructions}"
        return [{**messages[0], "content": system}, *messages[1:]]
    return [{"role": "system", "content": instructions}, *messages]


class HermesParser(CallParser):
    """Reads calls between <tool_call> and </tool_call>."""

    closing = CLOSING

    def _seek(self) -> bool:
        at = self._buffer.find(OPENING)
        if at < 0:
            held = 0 if self._final else _n_begun(self._buffer)
            kept = self._buffer[: len(self._buffer) - held]
            self._give_text(len(kept) if self._final else len(kept.rstrip(SPACE)))
            return False
        self._give_text(len(self._buffer[:at].rstrip(SPACE)))
        return self._enter(self._buffer.find(OPENING) + len(OPENING))

    def _behind_call(self) -> bool:
        self._buffer = self._buffer.lstrip(SPACE)
        return self._to_text() if self._buffer else False

    def _reject(self) -> bool:
        self._give_text(self._buffer.find(OPENING) + 1)
        return self._to_text()


def _n_begun(text: str) -> int:
    """How many of the last letters may begin an opening marker."""
    return next((n for n in range(min(len(OPENING) - 1, len(text)), 0, -1) if OPENING.startswith(text[-n:])), 0)
