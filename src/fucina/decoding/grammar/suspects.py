"""Finding the place in a schema that the engine refuses, since the engine's own words name none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fucina.decoding.grammar.checking import CheckedSchema, children, joined_keys
from fucina.errors import ConstraintTooLarge

_MAX_S, _MAX_TRIALS = 0.4, 200


def culprit(schema: CheckedSchema, is_refused: Callable[[Any], bool]) -> tuple[str, str | None]:
    """Give the JSON path and the keyword of the innermost subschema that is refused by itself.

    Tries parts of the schema for a few tenths of a second; the path may end too early then, and the keyword be None.
    """
    deadline = time.monotonic() + _MAX_S
    trials = 0

    def fails(part: Any) -> bool:
        nonlocal trials
        trials += 1
        if trials > _MAX_TRIALS or time.monotonic() > deadline:
            raise TimeoutError
        return is_refused(part)

    pointer, keyword = "", None
    try:
        while (inner := _refused_child(schema, pointer, fails)) is not None:
            pointer = inner
        keyword = _refused_keyword(schema.for_engine(pointer), fails)
    except (TimeoutError, ConstraintTooLarge):
        pass
    return schema.paths[pointer], keyword


def _refused_child(schema: CheckedSchema, pointer: str, fails: Callable[[Any], bool]) -> str | None:
    node = schema.nodes[pointer]
    if isinstance(node, dict):
        for keys, child in children(node):
            inner = pointer + joined_keys(keys)
            if child is not False and fails(schema.for_engine(inner)):
                return inner
    return None


def _refused_keyword(engine_schema: Any, fails: Callable[[Any], bool]) -> str | None:
    """The keyword without which the rest is taken."""
    if isinstance(engine_schema, dict):
        for keyword in engine_schema:
            if keyword not in ("type", "$defs"):
                rest = {name: value for name, value in engine_schema.items() if name != keyword}
                if not fails(rest):
                    return "format" if keyword == "allOf" and _is_format(engine_schema) else keyword
    return None


def _is_format(engine_schema: dict[str, Any]) -> bool:
    return all(set(part) == {"pattern"} for part in engine_schema["allOf"])
