"""Grammars for answers that are calls, and for answers that may turn into calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from fucina.decoding.grammar.constraint import Constraint
from fucina.server.tools.definition import Tool
from fucina.server.tools.schemas import arguments_schema

#: Calls that one answer may hold.
MAX_CALLS = 16


def functions(tools: Sequence[Tool], arguments_name: str, *, only_strict: bool = False) -> str:
    """Give Lark rules: `function` is the JSON object of a call of one of the tools, with arguments that fit its schema.

    `only_strict`: other tools than strict ones take any arguments. Raises ConfigError for a schema that cannot be
    enforced.
    """
    rules = ["function: " + " | ".join(f"function_{i}" for i in range(len(tools)))]
    for i, tool in enumerate(tools):
        head = f'{{"name": "{tool.name}", "{arguments_name}": '
        schema = arguments_schema(tool, is_strict=tool.strict or not only_strict)
        rules += [f"function_{i}: {literal(head)} arguments_{i} {literal('}')}", f"arguments_{i}: %json {schema}"]
    return "\n".join(rules)


def literal(text: str) -> str:
    """Give text as a string of Lark."""
    return json.dumps(text)


def text_without(marker: str) -> str:
    """Give the regular expression of all text without a marker, whose first letter occurs in it only there."""
    first, rest = re.escape(marker[0]), marker[1:]
    assert marker[0] not in rest
    begun = [re.escape(rest[:i]) for i in range(len(rest))]
    again = "|".join(f"{part}{first}" for part in begun)
    other = "|".join(f"{part}[^{first}{re.escape(rest[i])}]" for i, part in enumerate(begun))
    unfinished = "|".join(begun)
    return f"([^{first}]|{first}({again})*({other}))*({first}({again})*({unfinished}))?"


def json_lark(*rules: str) -> Constraint:
    """Give the constraint of rules for answers of calls alone."""
    return Constraint.json_lark("\n".join(rules))


def lark(*rules: str) -> Constraint:
    """Give the constraint of rules for answers with free text as well."""
    return Constraint.lark("\n".join(rules))
