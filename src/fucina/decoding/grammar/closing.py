"""Schemas of types, closed: a type names all its fields, so an answer may have no others."""

from __future__ import annotations

from typing import Any

#: Where schemas stand within a schema: by name, in a list, or alone.
_NAMED, _LISTED = ("$defs", "properties", "patternProperties"), ("anyOf", "oneOf", "allOf", "prefixItems")
_ALONE = ("items", "additionalProperties")


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Give a schema whose objects have their properties and no more, except where it says otherwise itself.

    Validation of a type ignores what it does not know, so its schema is open; a model would go on inventing fields that
    nobody reads.
    """
    found = {
        **schema,
        **{key: {name: _closed(sub) for name, sub in schema[key].items()} for key in _NAMED if key in schema},
        **{key: [_closed(sub) for sub in schema[key]] for key in _LISTED if key in schema},
        **{key: _closed(schema[key]) for key in _ALONE if key in schema},
    }
    if "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


def _closed(schema: Any) -> Any:
    return closed(schema) if isinstance(schema, dict) else schema
