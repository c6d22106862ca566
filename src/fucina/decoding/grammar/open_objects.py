"""Whether a schema takes objects with keys that it does not name."""

from __future__ import annotations

from typing import Any, NamedTuple

from fucina.decoding.grammar.checking import CheckedSchema, children, joined_keys

_MAX_STEPS, _MAX_PARTS = 20_000, 64
_BRANCHES = ("anyOf", "oneOf")
_NO_VALUES = ("$defs", "definitions", "allOf", *_BRANCHES)

Node = dict[str, Any]


class _Bounds(NamedTuple):
    """What schemas that a value must fit all leave of objects with other keys, and of arrays with any items."""

    other_keys: bool = True
    any_items: bool = True

    def within(self, node: Node) -> _Bounds:
        """What one more schema leaves."""
        if "const" in node or "enum" in node:
            return _Bounds(False, False)
        kinds = node.get("type", ("object", "array"))
        names_all = node.get("additionalProperties") is False and not node.get("patternProperties")
        return _Bounds(
            self.other_keys and "object" in kinds and not names_all,
            self.any_items and "array" in kinds and not _describes_all_items(node),
        )


def has_other_keys(schema: CheckedSchema) -> bool:
    """Whether a value may hold an object with keys that nothing names. True where that is costly to tell."""
    pending = [("", _Bounds())]
    seen = {*pending}
    while pending:
        pointer, bounds = pending.pop()
        parts = _parts(schema, pointer)
        if parts is None or len(seen) > _MAX_STEPS:
            return True
        if schema.nodes[pointer] is False:
            continue
        for node in parts.values():
            bounds = bounds.within(node)
        branches = {
            f"{at}/{keyword}/{i}"
            for at, node in parts.items()
            for keyword in _BRANCHES
            for i in _indices(node, keyword)
        }
        if not branches and any(bounds):
            return True
        values = {
            f"{at}{joined_keys(keys)}"
            for at, node in parts.items()
            for keys, _ in children(node)
            if keys[0] not in _NO_VALUES
        }
        found = {(branch, bounds) for branch in branches} | {(value, _Bounds()) for value in values}
        pending += found - seen
        seen |= found
    return False


def _parts(schema: CheckedSchema, pointer: str) -> dict[str, Node] | None:
    """The schemas that one value must fit all: the one there, what it refers to, and their allOf; None if too many."""
    found: dict[str, Node] = {}
    pending = [pointer]
    while pending:
        at = pending.pop()
        node = schema.nodes[at]
        if at in found or not isinstance(node, dict):
            continue
        if len(found) == _MAX_PARTS:
            return None
        found[at] = node
        pending += [f"{at}/allOf/{i}" for i in _indices(node, "allOf")]
        if "$ref" in node and (target := schema.target(node["$ref"])) is not None:
            pending.append(target)
    return found


def _describes_all_items(node: Node) -> bool:
    items = node.get("items")
    listed, rest = (items, "additionalItems") if isinstance(items, list) else (node.get("prefixItems", ()), "items")
    return rest in node or ("maxItems" in node and node["maxItems"] <= len(listed))


def _indices(node: Node, keyword: str) -> range:
    return range(len(node.get(keyword, ())))


def has_patterns_for_keys(schema: CheckedSchema) -> bool:
    """Whether an object may take no more than the keys that match a pattern, which may be few."""
    return any(isinstance(node, dict) and bool(node.get("patternProperties")) for node in schema.nodes.values())
