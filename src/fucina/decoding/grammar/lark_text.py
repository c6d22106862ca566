"""Lark grammars before the engine sees them: what of its dialect is taken, and the JSON schemas within.

The dialect is llguidance's: rules, terminals, regular expressions, `%import`, `%ignore`, `%regex` and `%json`. Refused
is what would name tokens instead of text, reach outside the grammar, change how an answer is sampled, or do nothing.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from fucina.decoding.grammar.checking import CheckedSchema
from fucina.decoding.grammar.json_text import parsed_schema
from fucina.decoding.grammar.schema import canonical_schema, checked_schema
from fucina.errors import BadGrammar, BadSchema

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

#: How JSON is written: two separators, and no other white space; no character as \u0000, so that no name is ambiguous.
JSON_FORM: JsonCompileOptions = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf\\"',
}
_MAX_RULES = 2000
#: Strings, regular expressions and comments, which may hold anything; %json, which is followed by a schema.
_PIECES = re.compile(
    r'"(?:\\.|[^"\\\n])*"|/(?![/*])(?:\\.|[^/\\\n])+/|//[^\n]*|\#[^\n]*|(?P<json>%json\b)|(?P<refused>%llguidance|[<@~\[]|::)'
    r"|(?P<rule>^[ \t]*[?!]?\w+[^\n:]*:(?!:))",
    re.MULTILINE,
)
_REASONS = {
    "<": "tokens by name or number are not taken; write the text that is meant",
    "@": "other grammars cannot be named",
    "::": "rules with parameters are not taken",
    "%llguidance": "options of the engine are not taken",
    "~": "the complement of a terminal would hold bytes that are no text",
    "[": "attributes of rules other than [lazy] are not taken; for something optional write (...)?",
}


class EngineLark(NamedTuple):
    """A grammar in the form for the engine, and the schemas within."""

    text: str
    schemas: list[CheckedSchema]


def engine_lark(grammar: str) -> EngineLark:
    """Give a grammar in the form for the engine. Raises BadGrammar and BadSchema (from a %json within)."""
    parts: list[str] = []
    schemas: list[CheckedSchema] = []
    at = done = n_rules = 0
    while (found := _PIECES.search(grammar, at)) is not None:
        at = found.end()
        n_rules += found["rule"] is not None
        if found["rule"]:
            at = found.start() + _name_end(found[0])
        elif found["refused"] == "[" and grammar.startswith("lazy]", at):
            continue
        elif found["refused"]:
            raise BadGrammar(f"line {_line(grammar, found.start())}: {_REASONS[found['refused']]}")
        elif found["json"]:
            schema, at = _schema_at(grammar, at)
            schemas.append(schema)
            parts += [grammar[done : found.end()], " ", _for_engine(schema)]
            done = at
    if n_rules > _MAX_RULES:
        raise BadGrammar(f"{n_rules} rules: at most {_MAX_RULES} are taken")
    return EngineLark("".join([*parts, grammar[done:]]), schemas)


def _name_end(rule: str) -> int:
    found = re.match(r"[ \t]*[?!]?\w+", rule)
    assert found is not None
    return found.end()


def _schema_at(grammar: str, at: int) -> tuple[CheckedSchema, int]:
    start = re.compile(r"\s*").match(grammar, at)
    assert start is not None
    try:
        _, end = json.JSONDecoder().raw_decode(grammar, start.end())
    except (ValueError, RecursionError) as error:
        raise BadGrammar(f"line {_line(grammar, at)}: %json needs a JSON schema after it ({error})"[:300]) from error
    return checked_schema(canonical_schema(parsed_schema(grammar[start.end() : end]))), end


def _for_engine(checked: CheckedSchema) -> str:
    schema = checked.for_engine()
    if not isinstance(schema, dict):
        raise BadSchema("a schema within a Lark grammar must be an object")
    return json.dumps({**schema, "x-guidance": JSON_FORM}, ensure_ascii=False)


def _line(grammar: str, at: int) -> int:
    return grammar.count("\n", 0, at) + 1
