"""The schemas of tools' arguments as a grammar takes them."""

from __future__ import annotations

import json
from typing import Any

from fucina.decoding.grammar.checking import CheckedSchema, children
from fucina.decoding.grammar.schema import canonical_schema, checked_schema
from fucina.errors import BadSchema, ConfigError, ConstraintError
from fucina.server.tools.definition import Tool

_COMBINING = ("allOf", "anyOf", "oneOf", "$ref")
_ANY_OBJECT = '{"type":"object"}'


def arguments_schema(tool: Tool, *, is_strict: bool = True) -> str:
    """Give the schema of a tool's arguments as JSON text, for %json in a Lark grammar.

    A function takes the arguments that it names and no others, so objects are closed where the schema leaves that open
    and closing them is safe: what fits then fits the schema as it was given. Not `is_strict`: any object. Raises
    ConfigError naming the place of a keyword that cannot be enforced.
    """
    if not is_strict:
        return _ANY_OBJECT
    schema = {"properties": {}, **(tool.parameters or {}), "type": "object"}
    if tool.parameters is not None and not ({"properties", *_COMBINING} & set(tool.parameters)):
        del schema["properties"]  # {"type": "object"}: whatever the model thinks fit
    try:
        text = canonical_schema(schema)
        checked = checked_schema(text)
        if _may_be_closed(checked):
            text = canonical_schema(_closed(checked.root))
            checked = checked_schema(text)
        return json.dumps(checked.for_engine(), ensure_ascii=False)  # without annotations, which may be long
    except BadSchema as error:
        place = f"{tool.parameters_path}{error.path[1:]}{f'.{error.keyword}' if error.keyword else ''}"
        raise ConfigError(place, got=error.keyword or "a schema", expected=f"what can be enforced: {error}") from error
    except ConstraintError as error:
        raise ConfigError(tool.parameters_path, got="a schema", expected=f"a smaller one: {error}") from error


def _may_be_closed(schema: CheckedSchema) -> bool:
    """Whether every object with properties is described in one place, so that no other place adds to them."""
    nodes = [node for node in schema.nodes.values() if isinstance(node, dict)]
    described = [node for node in nodes if "properties" in node]
    return not any("allOf" in node for node in nodes) and not any(
        set(_COMBINING) & set(node) or set(node.get("required", ())) - set(node["properties"]) for node in described
    )


def _closed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    found = json.loads(json.dumps(node))
    stack = [found]
    while stack:
        inner = stack.pop()
        if isinstance(inner, dict):
            if "properties" in inner:
                inner.setdefault("additionalProperties", False)
            stack += [child for _, child in children(inner)]
    return found
