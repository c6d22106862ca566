"""Whether two subschemas exclude each other, as far as their types and constants show."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_ALL = frozenset({"null", "boolean", "integer", "fraction", "string", "array", "object"})
#: References followed in a row, and steps of one comparison; beyond them the answer is "may overlap".
_MAX_HOPS, _MAX_STEPS = 16, 2000


class Overlap:
    """Compares subschemas of one document; `resolve` gives the one that a $ref leads to."""

    def __init__(self, resolve: Callable[[str], Any]) -> None:
        self._resolve = resolve
        self._steps_left = 0

    def excludes(self, first: Any, second: Any) -> bool:
        """Whether certainly no value fits both."""
        self._steps_left = _MAX_STEPS
        return self._excludes(first, second)

    def _excludes(self, first: Any, second: Any) -> bool:
        self._steps_left -= 1
        if self._steps_left < 0:
            return False
        left, right = self._followed(first), self._followed(second)
        if left is False or right is False:
            return True
        if left is True or right is True:
            return False
        for one, other in ((left, right), (right, left)):
            for keyword in ("anyOf", "oneOf"):
                if keyword in one:
                    return all(self._excludes(branch, other) for branch in one[keyword])
        values = _constants(left), _constants(right)
        if values[0] is not None and values[1] is not None:
            return not values[0] & values[1]
        shared = self._types(left) & self._types(right)
        if not shared:
            return True
        return shared == {"object"} and any(
            self._excludes(left["properties"][name], right["properties"][name])
            for name in left.get("required", ())
            if name in right.get("required", ())
            and name in left.get("properties", ())
            and name in right.get("properties", ())
        )

    def _followed(self, node: Any) -> Any:
        """The schema at the end of a chain of references without anything beside them."""
        for _ in range(_MAX_HOPS):
            if not isinstance(node, dict) or "$ref" not in node:
                return node
            node = self._resolve(node["$ref"])
        return True

    def _types(self, node: dict[str, Any]) -> frozenset[str]:
        types = _ALL
        if "type" in node:
            named = node["type"] if isinstance(node["type"], list) else [node["type"]]
            types = frozenset(
                kind for name in named for kind in (("integer", "fraction") if name == "number" else (name,))
            )
        values = [node["const"]] if "const" in node else node.get("enum")
        return types if values is None else types & {_kind(value) for value in values}


def _constants(node: dict[str, Any]) -> set[str] | None:
    if "const" in node:
        return {_written(node["const"])}
    return {_written(value) for value in node["enum"]} if "enum" in node else None


def _written(value: Any) -> str:
    """A text that is equal for equal values: 1 and 1.0 are, True and 1 are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(key)}:{_written(value[key])}' for key in sorted(value))}}}"
    return json.dumps(value)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "fraction"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
